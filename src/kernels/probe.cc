#include "kernels/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "kernels/cpu/cpu_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kuruma::kernels {
namespace {

constexpr int kPasses = 5;
constexpr int64_t kReadBytes = int64_t{256} << 20;
constexpr int64_t kFmaSteps = 2'000'000;  // about 5 ms per pass
constexpr int kChains = 12;               // latency 4 times two units needs at least 8

// What a loop computed goes here, so that no compiler drops the loop.
std::atomic<float> sink;

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Shortest time of one body per thread of the pool.
template <typename Body>
double BestPass(ThreadPool& pool, Body body) {
  double best = 1e30;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(pool.threads(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
    best = std::min(best, Seconds(start));
  }
  return best;
}

using Vector4 = float __attribute__((vector_size(16)));

void ReadPortable(const float* p, int64_t count) {
  Vector4 sum[4] = {};
  for (int64_t i = 0; i + 16 <= count; i += 16) {
    for (int j = 0; j < 4; ++j) sum[j] += reinterpret_cast<const Vector4*>(p + i)[j];
  }
  sink.store(sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0], std::memory_order_relaxed);
}

// Returns the floating point operations done.
double MultiplyPortable() {
  Vector4 acc[kChains] = {};
  const Vector4 a = {1.0f, 1.0f, 1.0f, 1.0f};
  for (int64_t i = 0; i < kFmaSteps; ++i) {
    for (Vector4& v : acc) v = v * a + a;
  }
  for (const Vector4& v : acc) sink.store(v[0], std::memory_order_relaxed);
  return 2.0 * 4 * kChains * kFmaSteps;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void ReadAvx2(const float* p, int64_t count) {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
  for (int64_t i = 0; i + 32 <= count; i += 32) {
    a = _mm256_add_ps(a, _mm256_load_ps(p + i));
    b = _mm256_add_ps(b, _mm256_load_ps(p + i + 8));
    c = _mm256_add_ps(c, _mm256_load_ps(p + i + 16));
    d = _mm256_add_ps(d, _mm256_load_ps(p + i + 24));
  }
  const __m256 sum = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
  sink.store(_mm256_cvtss_f32(sum), std::memory_order_relaxed);
}

__attribute__((target("avx2,fma"))) double MultiplyAvx2() {
  __m256 acc[kChains];
  for (__m256& v : acc) v = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) acc[j] = _mm256_fmadd_ps(acc[j], a, a);
  }
  for (const __m256& v : acc) sink.store(_mm256_cvtss_f32(v), std::memory_order_relaxed);
  return 2.0 * 8 * kChains * kFmaSteps;
}
#else
void ReadAvx2(const float* p, int64_t count) { ReadPortable(p, count); }
double MultiplyAvx2() { return MultiplyPortable(); }
#endif

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool) {
  const std::unique_ptr<float, FreeDeleter> buffer(
      static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>(kReadBytes))));
  KURUMA_CHECK(buffer != nullptr);
  const int64_t part = kReadBytes / 4 / pool.threads() / 1024 * 1024;
  std::fill_n(buffer.get(), part * pool.threads(), 1.0f);
  const bool avx2 = CpuHasAvx2();
  const double best = BestPass(pool, [&](int64_t i) {
    const float* from = buffer.get() + i * part;
    avx2 ? ReadAvx2(from, part) : ReadPortable(from, part);
  });
  return static_cast<double>(part * 4 * pool.threads()) / best;
}

double MeasureFmaPeak(ThreadPool& pool) {
  const bool avx2 = CpuHasAvx2();
  const double operations = avx2 ? MultiplyAvx2() : MultiplyPortable();
  const double best = BestPass(pool, [&](int64_t) { avx2 ? MultiplyAvx2() : MultiplyPortable(); });
  return operations * pool.threads() / best;
}

}  // namespace kuruma::kernels
