// The CPU targets, built from one source (the *-inl.h files beside this header).
#ifndef KURUMA_KERNELS_CPU_CPU_OPS_H_
#define KURUMA_KERNELS_CPU_CPU_OPS_H_

#include "kernels/ops.h"

namespace kuruma::kernels {

// "cpu-portable": compiled for the baseline of the build, runs everywhere.
const OpTable& CpuPortableOps();

// "cpu-avx2": needs AVX2, FMA and F16C; call its entries only where CpuHasAvx2() is true.
const OpTable& CpuAvx2Ops();

// Whether this processor (and this build's architecture) runs CpuAvx2Ops(). Any thread.
bool CpuHasAvx2();

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_CPU_CPU_OPS_H_
