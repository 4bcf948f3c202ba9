#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kuruma {

void CheckFailed(const char* file, int line, const char* promise) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, promise);
  std::abort();
}

}  // namespace kuruma
