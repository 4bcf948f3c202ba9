#include "inputs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <iostream>
#include <sstream>

namespace kuruma {

Result<std::string> ReadInput(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return InvalidArgument(path + ": is a directory, not a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": cannot be opened");
  text << file.rdbuf();
  if (file.bad()) return DataLoss(path + ": cannot be read");
  return text.str();
}

std::string_view Strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

Result<std::vector<int32_t>> ParseTokens(const nlohmann::json& list, int64_t vocab,
                                         const std::string& name) {
  if (!list.is_array()) return InvalidArgument(name + " must be a list of token ids");
  if (list.empty()) return InvalidArgument(name + " is empty");
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const nlohmann::json& item : list) {
    // Compared before narrowing, so that no huge number wraps into a valid id.
    if (!item.is_number_integer() || item < 0 || item >= vocab) {
      return InvalidArgument(fmt::format("{}[{}] must be an integer in 0..{}, got {}", name,
                                         tokens.size(), vocab - 1,
                                         item.is_number() ? item.dump() : item.type_name()));
    }
    tokens.push_back(item.get<int32_t>());
  }
  return tokens;
}

Result<std::vector<int32_t>> EncodeText(const text::Tokenizer& tokenizer, int32_t bos_token,
                                        std::string_view text, bool raw_special) {
  KURUMA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          raw_special ? tokenizer.Encode(text) : tokenizer.EncodePlain(text));
  std::vector<int32_t> prompt{bos_token};
  prompt.insert(prompt.end(), ids.begin(), ids.end());
  return prompt;
}

}  // namespace kuruma
