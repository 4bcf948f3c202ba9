// The AVX2 target; this file alone is compiled for it. Where the compiler does not target x86-64
// there is no such table and the portable one stands in (CpuHasAvx2() is false there).
#include "kernels/cpu/cpu_ops.h"

#if defined(__AVX2__) && defined(__FMA__)

#define KURUMA_CPU_TARGET avx2
#include "kernels/cpu/table-inl.h"

namespace kuruma::kernels {

const OpTable& CpuAvx2Ops() {
  static constexpr OpTable kTable = avx2::MakeTable("cpu-avx2");
  return kTable;
}

}  // namespace kuruma::kernels

#else

namespace kuruma::kernels {

const OpTable& CpuAvx2Ops() { return CpuPortableOps(); }

}  // namespace kuruma::kernels

#endif
