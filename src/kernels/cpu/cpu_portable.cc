// The target without processor requirements, and the question which targets can run.
#define KURUMA_CPU_TARGET portable

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/table-inl.h"

namespace kuruma::kernels {

const OpTable& CpuPortableOps() {
  static constexpr OpTable kTable = portable::MakeTable("cpu-portable");
  return kTable;
}

bool CpuHasAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

}  // namespace kuruma::kernels
