// The toolkit's own path: nvcc compiles this, it runs on every GPU and checks every element. Prints one JSON document.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void scale(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 3 * in[i] + i;
}

static const char* one(int device, int n, int* wrong) {
  std::vector<int> host(n), back(n);
  for (int i = 0; i < n; ++i) host[i] = (i * 2654435761u) >> 8;
  int *in = nullptr, *out = nullptr;
  cudaError_t e;
  if ((e = cudaSetDevice(device)) || (e = cudaMalloc(&in, n * sizeof(int))) || (e = cudaMalloc(&out, n * sizeof(int))) ||
      (e = cudaMemset(out, 0xFF, n * sizeof(int))) || (e = cudaMemcpy(in, host.data(), n * sizeof(int), cudaMemcpyHostToDevice)))
    return cudaGetErrorName(e);
  scale<<<(n + 255) / 256, 256>>>(in, out, n);
  if ((e = cudaGetLastError()) || (e = cudaMemcpy(back.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost))) return cudaGetErrorName(e);
  *wrong = 0;
  for (int i = 0; i < n; ++i) *wrong += back[i] != 3 * host[i] + i;
  cudaFree(in);
  cudaFree(out);
  return nullptr;
}

int main() {
  int driver = 0, runtime = 0, devices = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaError_t e = cudaGetDeviceCount(&devices);
  std::printf("{\"driver_cuda\": %d, \"runtime_cuda\": %d, \"error\": ", driver, runtime);
  if (e) std::printf("\"%s\", ", cudaGetErrorName(e)); else std::printf("null, ");
  std::printf("\"gpus\": [");
  for (int d = 0; d < devices; ++d) {
    int wrong = -1;
    const char* failure = one(d, 1000003, &wrong);
    std::printf("%s{\"index\": %d, \"wrong\": %d, \"error\": ", d ? ", " : "", d, wrong);
    if (failure) std::printf("\"%s\"}", failure); else std::printf("null}");
  }
  std::printf("]}\n");
  return 0;
}
