output "user_data" {
  description = "cloud-config for the machines"
  value       = data.external.user_data.result.user_data
}
