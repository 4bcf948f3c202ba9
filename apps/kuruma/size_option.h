// Flags that take sizes of memory.
#ifndef KURUMA_APPS_SIZE_OPTION_H_
#define KURUMA_APPS_SIZE_OPTION_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace kuruma {

// A flag that takes what ParseByteSize (base/byte_size.h) does. `bytes` holds the default: if that
// is 0 it is found at run time and users give at least 1, else they may give 0 as well.
CLI::Option* AddSizeOption(CLI::App* command, const std::string& name, int64_t* bytes,
                           const std::string& help);

}  // namespace kuruma

#endif  // KURUMA_APPS_SIZE_OPTION_H_
