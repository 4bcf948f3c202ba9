// Sizes of memory as people write them: "1073741824", "512MiB", "1.5 GiB", "2GB".
#ifndef KURUMA_BASE_BYTE_SIZE_H_
#define KURUMA_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace kuruma {

// Bytes of a number with an optional unit, letters in either case, spaces around both allowed. The
// units are those of the GNU tools: K or KiB is 1024, KB is 1000, and so on with M, G, T, P and E;
// B is one byte. What is no whole number of bytes is cut. InvalidArgument for everything else, and
// for sizes beyond int64. Any thread.
Result<int64_t> ParseByteSize(std::string_view text);

}  // namespace kuruma

#endif  // KURUMA_BASE_BYTE_SIZE_H_
