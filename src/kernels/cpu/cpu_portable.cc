// The target without processor requirements, and the question which targets can run.
#define KURUMA_CPU_TARGET portable

#include "kernels/cpu/cpu_ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/table-inl.h"

namespace kuruma::kernels {

const OpTable& CpuPortableOps() {
  static constexpr OpTable kTable = portable::MakeTable("cpu-portable");
  return kTable;
}

bool CpuHasAvx2() {
#if defined(__x86_64__)
  // Asked once: the instruction behind it takes microseconds in a virtual machine.
  static const bool runs = [] {
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }();
  return runs;
#else
  return false;
#endif
}

}  // namespace kuruma::kernels
