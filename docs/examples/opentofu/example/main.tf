# Two machines of AWS with one proven stack. Everything in capitals is yours.
module "gpu_stack" {
  source       = "../"
  requirements = ["torch==2.9.*"]
  gpu          = "l4"
  os           = "ubuntu24.04"
  source_url   = "https://files.example/gpusetup-bundle"
  manifest     = "gpusetup-bundle/manifest.json"
}

resource "aws_instance" "gpu" {
  count         = 2
  ami           = "AMI-OF-UBUNTU-24.04"
  instance_type = "g6.xlarge"
  user_data     = module.gpu_stack.user_data

  root_block_device {
    volume_size = 100
  }
}
