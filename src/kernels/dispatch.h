// The one place that chooses which implementation of the ops runs.
#ifndef KURUMA_KERNELS_DISPATCH_H_
#define KURUMA_KERNELS_DISPATCH_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/ops.h"

namespace kuruma::kernels {

// The table for a --kernels value: "reference", "cpu" (the best this processor runs), or one CPU
// target by name ("cpu-portable", "cpu-avx2"). InvalidArgument names the value when it is unknown
// or when this processor lacks the instructions. Tables live for ever; any thread.
Result<const OpTable*> FindOps(const std::string& name);

// The CPU tables that can run here, slowest first ("cpu-portable" is always there).
std::vector<const OpTable*> RunnableCpuOps();

// Plain loops that define every result.
const OpTable& ReferenceOps();

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_DISPATCH_H_
