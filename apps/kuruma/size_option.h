// Sizes of memory on the command line: "1073741824", "512MiB", "1 GiB".
#ifndef KURUMA_APPS_SIZE_OPTION_H_
#define KURUMA_APPS_SIZE_OPTION_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kuruma {

// Bytes of a whole number with an optional unit: B, K, KB, KiB and so on up to E, upper or lower
// case, each 1024 of the one before. At least `least`. InvalidArgument says what is accepted.
Result<int64_t> ParseSize(std::string_view text, int64_t least = 1);

// A flag that takes such a size. `bytes` holds the default: if that is 0 it is found at run time
// and users give at least 1, else they may give 0 as well.
CLI::Option* AddSizeOption(CLI::App* command, const std::string& name, int64_t* bytes,
                           const std::string& help);

}  // namespace kuruma

#endif  // KURUMA_APPS_SIZE_OPTION_H_
