# A golden image without a GPU: gpusetup installs, cleans up and seals the machine. docs/guides/golden-images.md explains it.
packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3"
    }
  }
}

variable "source_ami" {
  type        = string
  description = "The distribution's plain image"
}

variable "user_data_file" {
  type        = string
  default     = "image-user-data"
  description = "Made by gpusetup cloud-init --stage image"
}

source "amazon-ebs" "gpu" {
  source_ami     = var.source_ami
  instance_type  = "c7i.2xlarge" # no GPU is paid for while the image is made
  ssh_username   = "ubuntu"
  user_data_file = var.user_data_file
  ami_name       = "gpu-{{timestamp}}"
}

build {
  sources = ["source.amazon-ebs.gpu"]

  provisioner "shell" {
    inline = [
      "while [ ! -x /opt/gpusetup-controller/bin/gpusetup ]; do sleep 5; done",
      "sudo /opt/gpusetup-controller/bin/gpusetup cloud-init status --wait --timeout 5400",
    ]
  }
}
