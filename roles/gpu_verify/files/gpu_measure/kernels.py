"""CUDA source of all kernels that the checks launch, compiled once per process by NVRTC.

It includes nothing, so it needs no CUDA headers: whether those are installed is a separate check.
"""

SOURCE = r"""
extern "C" {

typedef unsigned long long u64;

__device__ __forceinline__ u64 mix(u64 x) {          // splitmix64: neighbouring words share no pattern
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__global__ void multiply_add(const float* x, const float* y, float* out, u64 n) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * y[i] + (float)(i % 17);
}

__global__ void fill(u64* out, u64 n, u64 seed) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
    out[i] = mix(i ^ seed);
}

__global__ void count_wrong(const u64* in, u64 n, u64 seed, u64* wrong, u64* first) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
    if (in[i] != mix(i ^ seed)) { atomicAdd(wrong, 1ull); atomicMin(first, i); }
}

__global__ void triad(const float4* __restrict__ b, const float4* __restrict__ c,
                      float4* __restrict__ a, float s, u64 n) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float4 x = b[i], y = c[i];
    a[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
  }
}

__global__ void ramp(float* out, u64 n, float scale) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
    out[i] = scale * (float)(i % 1021);
}

__global__ void count_wrong_triad(const float* a, u64 n, float b, float c, float s, u64* wrong) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    float r = (float)(i % 1021), want = b * r + s * (c * r);
    if (!(fabsf(a[i] - want) <= 1e-5f * fabsf(want))) atomicAdd(wrong, 1ull);
  }
}

__global__ void spin(u64 steps, float* out) {        // a chain of dependent operations: its length is `steps`
  float x = threadIdx.x;
  for (u64 i = 0; i < steps; ++i) x = fmaf(x, 1.0000001f, 0.5f);
  if (x == -1.0f) out[0] = x;
}

// NCCL: what rank r puts at element i, and the sum over n ranks; small integers, so float sums are exact.
__global__ void rank_values(float* out, u64 n, u64 rank) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
    out[i] = (float)((i * 7 + i / 4093) % 251 + rank);
}

__global__ void count_wrong_sum(const float* in, u64 n, u64 offset, u64 ranks, u64* wrong) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    u64 j = i + offset;
    float want = (float)(((j * 7 + j / 4093) % 251) * ranks + ranks * (ranks - 1) / 2);
    if (in[i] != want) atomicAdd(wrong, 1ull);
  }
}

__global__ void count_wrong_gather(const float* in, u64 per_rank, u64 ranks, u64* wrong) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < per_rank * ranks; i += (u64)gridDim.x * blockDim.x) {
    u64 j = i % per_rank;
    if (in[i] != (float)((j * 7 + j / 4093) % 251 + i / per_rank)) atomicAdd(wrong, 1ull);
  }
}

__global__ void random_bits(void* out, u64 n, u64 seed, int kind) {   // kind: 0 float, 1 half, 2 bfloat16
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    u64 r = mix(i ^ seed);
    float u = ((float)(unsigned)(r >> 40) + 1.0f) * (1.0f / 16777217.0f);
    float v = (float)(unsigned)(r & 0xFFFFFF) * (1.0f / 16777216.0f);
    float x = sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
    unsigned bits = __float_as_uint(x);
    if (kind == 0) ((float*)out)[i] = x;
    else if (kind == 2) ((unsigned short*)out)[i] = (unsigned short)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    else { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); ((unsigned short*)out)[i] = h; }
  }
}

}
"""
