// Reads and validates tokenizer.json; private to the text module's loader.
#ifndef KURUMA_TEXT_TOKENIZER_JSON_H_
#define KURUMA_TEXT_TOKENIZER_JSON_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/bpe.h"

namespace kuruma::text {

// One id of the file.
struct FileToken {
  std::string text;         // spelling in the file; not empty
  std::string bytes;        // what it decodes to
  bool in_vocab = false;    // takes part in merging
  bool added = false;       // matched as a whole
  bool special = false;     // added tokens only
  bool normalized = false;  // added tokens only: matched after the others
};

struct TokenizerFile {
  std::vector<FileToken> tokens;  // by id, without holes
  std::array<int32_t, 256> byte_ids = {};
  std::vector<Merge> merges;
};

// Parses the text of a tokenizer.json. `name` is the file's name for messages. kDataLoss naming
// file, field and reason when anything is missing, has a wrong type, contradicts itself, or asks
// for a pipeline other than the one this module implements. Pure; any thread.
Result<TokenizerFile> ReadTokenizerJson(std::string_view json, const std::string& name);

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_TOKENIZER_JSON_H_
