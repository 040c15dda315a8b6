# User-data for machines that set up their own NVIDIA stack, made by `gpusetup cloud-init` on the machine that runs OpenTofu.
terraform {
  required_version = ">= 1.5"
  required_providers {
    external = {
      source  = "hashicorp/external"
      version = ">= 2.3"
    }
  }
}

data "external" "user_data" {
  program = ["python3", "${path.module}/user_data.py"]
  query = {
    command      = var.command
    requirements = join(" ", var.requirements)
    gpu          = var.gpu
    os           = var.os
    source       = var.source_url
    manifest     = var.manifest
    stage        = var.stage
  }
}
