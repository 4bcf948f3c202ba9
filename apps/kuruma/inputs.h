// Reads what users hand to a command: files, JSON lists of tokens, texts.
#ifndef KURUMA_APPS_INPUTS_H_
#define KURUMA_APPS_INPUTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace kuruma {

// Content of a file, or of stdin when `path` is "-". NotFound / DataLoss name the file.
Result<std::string> ReadInput(const std::string& path);

// `text` without white space (space, tab, CR, LF) at both ends.
std::string_view Strip(std::string_view text);

// A JSON list of token ids, each in [0, vocab). `name` is what messages call it. InvalidArgument.
Result<std::vector<int32_t>> ParseTokens(const nlohmann::json& list, int64_t vocab,
                                         const std::string& name);

// Ids of a raw text: the begin-of-sentence token, then the text. Spellings of added tokens are
// ordinary text unless `raw_special`. InvalidArgument if the text is not UTF-8.
Result<std::vector<int32_t>> EncodeText(const text::Tokenizer& tokenizer, int32_t bos_token,
                                        std::string_view text, bool raw_special);

}  // namespace kuruma

#endif  // KURUMA_APPS_INPUTS_H_
