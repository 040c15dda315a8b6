variable "requirements" {
  description = "The stack, in the words of `gpusetup resolve`"
  type        = list(string)
  default     = []
}

variable "gpu" {
  description = "The GPU of the machines: h100, 'rtx 4090', 10de:2335"
  type        = string
}

variable "os" {
  description = "Their distribution: ubuntu24.04, debian12"
  type        = string
}

variable "source_url" {
  description = "Where the machines fetch the folder that `gpusetup bundle --controller-only` made"
  type        = string
}

variable "manifest" {
  description = "The manifest.json of that folder; its digest is pinned"
  type        = string
}

variable "stage" {
  description = "image: install what needs no GPU and seal the machine; empty: the whole stack"
  type        = string
  default     = ""
}

variable "command" {
  description = "The gpusetup to call"
  type        = string
  default     = "gpusetup"
}
