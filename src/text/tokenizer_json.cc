#include "text/tokenizer_json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <unordered_map>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"

namespace kuruma::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Reads one file. Views point into the parser's buffers, which outlive the reader.
class Reader {
 public:
  Reader(const std::string& name, TokenizerFile* file) : name_(name), file_(file) {}

  Status Read(const element& root);

 private:
  Status Error(std::string_view field, std::string_view reason) const {
    std::string message = fmt::format("{}: {}: {}", name_, field, reason);
    // Pieces of the file may hold anything; the message stays one printable line.
    for (char& c : message) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
    }
    return DataLoss(std::move(message));
  }

  // Member `key` of `parent`, of type T; `field` is its full name for messages.
  template <typename T>
  Status Get(const object& parent, std::string_view key, std::string_view field, T* value) const {
    element member;
    if (parent.at_key(key).get(member) != simdjson::SUCCESS) return Error(field, "missing");
    return As(member, field, value);
  }
  template <typename T>
  Status As(const element& value, std::string_view field, T* out) const {
    if (value.get(*out) == simdjson::SUCCESS) return {};
    return Error(field, fmt::format("must be {}", TypeName(out)));
  }
  static std::string_view TypeName(const object*) { return "an object"; }
  static std::string_view TypeName(const array*) { return "an array"; }
  static std::string_view TypeName(const std::string_view*) { return "a string"; }
  static std::string_view TypeName(const bool*) { return "true or false"; }
  static std::string_view TypeName(const int64_t*) { return "an integer"; }

  Status CheckUnset(const object& parent, std::string_view key, std::string_view field) const;
  Status CheckPipeline(const object& root) const;
  Status CheckPreTokenizer(const object& pre_tokenizer) const;
  Status CheckSplit(const object& split, std::string_view field, std::string_view pattern) const;
  Status CheckByteLevelSplit(const object& step, std::string_view field) const;
  Status CheckModel(const object& model) const;
  Status CountTokens(const object& vocab, const array& added);
  Status ReadVocab(const object& vocab);
  Status ReadAddedTokens(const array& added);
  Status ReadAddedToken(const object& entry, const std::string& field);
  Status ReadBytes();
  Status ReadMerges(const array& merges);
  Status ReadMerge(const element& entry, const std::string& field, Merge* merge);
  Status ClaimId(std::string_view field, std::string_view text, int64_t id);

  const std::string& name_;
  TokenizerFile* file_;
  std::unordered_map<std::string_view, int32_t> ids_;  // of the vocabulary
};

// The field must be absent, null, false, zero or empty: everything else asks for a behaviour that
// this tokenizer does not have.
Status Reader::CheckUnset(const object& parent, std::string_view key,
                          std::string_view field) const {
  element value;
  if (parent.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return {};
  bool flag = true;
  double number = 1;
  std::string_view text = "set";
  if (value.get(flag) == simdjson::SUCCESS && !flag) return {};
  if (value.get(number) == simdjson::SUCCESS && number == 0) return {};
  if (value.get(text) == simdjson::SUCCESS && text.empty()) return {};
  return Error(field, "is set, which is not supported");
}

Status Reader::CheckSplit(const object& split, std::string_view field,
                          std::string_view pattern) const {
  std::string_view type;
  std::string_view behavior;
  object pattern_object;
  std::string_view regex;
  KURUMA_RETURN_IF_ERROR(Get(split, "type", fmt::format("{}.type", field), &type));
  if (type != "Split") return Error(field, fmt::format("unknown step \"{}\"", type));
  KURUMA_RETURN_IF_ERROR(Get(split, "pattern", fmt::format("{}.pattern", field), &pattern_object));
  KURUMA_RETURN_IF_ERROR(
      Get(pattern_object, "Regex", fmt::format("{}.pattern.Regex", field), &regex));
  if (regex != pattern) {
    return Error(fmt::format("{}.pattern.Regex", field),
                 "is not the regular expression of the DeepSeek V3/V4 family");
  }
  KURUMA_RETURN_IF_ERROR(Get(split, "behavior", fmt::format("{}.behavior", field), &behavior));
  if (behavior != "Isolated") {
    return Error(fmt::format("{}.behavior", field), "must be \"Isolated\"");
  }
  return CheckUnset(split, "invert", fmt::format("{}.invert", field));
}

Status Reader::CheckByteLevelSplit(const object& step, std::string_view field) const {
  std::string_view type;
  bool use_regex = true;
  KURUMA_RETURN_IF_ERROR(Get(step, "type", fmt::format("{}.type", field), &type));
  if (type != "ByteLevel") return Error(field, fmt::format("unknown step \"{}\"", type));
  KURUMA_RETURN_IF_ERROR(
      CheckUnset(step, "add_prefix_space", fmt::format("{}.add_prefix_space", field)));
  KURUMA_RETURN_IF_ERROR(Get(step, "use_regex", fmt::format("{}.use_regex", field), &use_regex));
  if (use_regex) return Error(fmt::format("{}.use_regex", field), "must be false");
  return {};
}

Status Reader::CheckPreTokenizer(const object& pre_tokenizer) const {
  std::string_view type;
  array steps;
  KURUMA_RETURN_IF_ERROR(Get(pre_tokenizer, "type", "pre_tokenizer.type", &type));
  if (type != "Sequence") {
    return Error("pre_tokenizer.type", fmt::format("must be \"Sequence\", not \"{}\"", type));
  }
  KURUMA_RETURN_IF_ERROR(
      Get(pre_tokenizer, "pretokenizers", "pre_tokenizer.pretokenizers", &steps));
  if (steps.size() != 4) {
    return Error("pre_tokenizer.pretokenizers",
                 fmt::format("must have 4 steps (3 Split, ByteLevel), has {}", steps.size()));
  }
  size_t index = 0;
  for (const element step_element : steps) {
    const std::string field = fmt::format("pre_tokenizer.pretokenizers[{}]", index);
    object step;
    KURUMA_RETURN_IF_ERROR(As(step_element, field, &step));
    KURUMA_RETURN_IF_ERROR(index < 3 ? CheckSplit(step, field, kSplitPatterns[index])
                                     : CheckByteLevelSplit(step, field));
    ++index;
  }
  return {};
}

Status Reader::CheckPipeline(const object& root) const {
  object pre_tokenizer;
  object decoder;
  std::string_view type;
  KURUMA_RETURN_IF_ERROR(Get(root, "pre_tokenizer", "pre_tokenizer", &pre_tokenizer));
  KURUMA_RETURN_IF_ERROR(CheckPreTokenizer(pre_tokenizer));
  KURUMA_RETURN_IF_ERROR(Get(root, "decoder", "decoder", &decoder));
  KURUMA_RETURN_IF_ERROR(Get(decoder, "type", "decoder.type", &type));
  if (type != "ByteLevel") return Error("decoder.type", "must be \"ByteLevel\"");

  element value;
  if (root.at_key("normalizer").get(value) == simdjson::SUCCESS && !value.is_null()) {
    object normalizer;
    array steps;
    KURUMA_RETURN_IF_ERROR(As(value, "normalizer", &normalizer));
    KURUMA_RETURN_IF_ERROR(Get(normalizer, "type", "normalizer.type", &type));
    if (type != "Sequence") return Error("normalizer.type", "must be null or an empty Sequence");
    KURUMA_RETURN_IF_ERROR(Get(normalizer, "normalizers", "normalizer.normalizers", &steps));
    if (steps.size() != 0) return Error("normalizer.normalizers", "must be empty");
  }
  if (root.at_key("post_processor").get(value) == simdjson::SUCCESS && !value.is_null()) {
    object post_processor;
    KURUMA_RETURN_IF_ERROR(As(value, "post_processor", &post_processor));
    KURUMA_RETURN_IF_ERROR(Get(post_processor, "type", "post_processor.type", &type));
    if (type != "ByteLevel") return Error("post_processor.type", "must be null or \"ByteLevel\"");
  }
  return {};
}

Status Reader::CheckModel(const object& model) const {
  std::string_view type;
  KURUMA_RETURN_IF_ERROR(Get(model, "type", "model.type", &type));
  if (type != "BPE") return Error("model.type", fmt::format("must be \"BPE\", not \"{}\"", type));
  for (const std::string_view key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                     "byte_fallback", "ignore_merges"}) {
    KURUMA_RETURN_IF_ERROR(CheckUnset(model, key, fmt::format("model.{}", key)));
  }
  return {};
}

// How many ids the file defines: ids must then fill 0..count-1.
Status Reader::CountTokens(const object& vocab, const array& added) {
  size_t count = 0;
  for (const auto& entry : vocab) {
    if (!ids_.emplace(entry.key, -1).second) {
      return Error("model.vocab", fmt::format("\"{}\" is there twice", entry.key));
    }
    ++count;
  }
  size_t index = 0;
  for (const element entry_element : added) {
    const std::string field = fmt::format("added_tokens[{}]", index++);
    object entry;
    std::string_view content;
    KURUMA_RETURN_IF_ERROR(As(entry_element, field, &entry));
    KURUMA_RETURN_IF_ERROR(Get(entry, "content", field + ".content", &content));
    if (!ids_.contains(content)) ++count;
  }
  if (count > size_t{1} << 30) return Error("model.vocab", "too many tokens");
  file_->tokens.resize(count);
  return {};
}

// Checks `id` and gives it to `text`.
Status Reader::ClaimId(std::string_view field, std::string_view text, int64_t id) {
  const size_t count = file_->tokens.size();
  if (text.empty()) return Error(field, "a token must not be empty");
  if (id < 0 || static_cast<uint64_t>(id) >= count) {
    return Error(field, fmt::format("id {} of \"{}\" is out of range: the file has {} tokens, "
                                    "whose ids must be 0..{}",
                                    id, text, count, count - 1));
  }
  FileToken& token = file_->tokens[static_cast<size_t>(id)];
  if (!token.text.empty()) {
    return Error(field, fmt::format("id {} is given to \"{}\" and \"{}\"", id, token.text, text));
  }
  token.text = text;
  return {};
}

Status Reader::ReadVocab(const object& vocab) {
  for (const auto& entry : vocab) {
    int64_t id = 0;
    KURUMA_RETURN_IF_ERROR(As(entry.value, fmt::format("model.vocab[\"{}\"]", entry.key), &id));
    KURUMA_RETURN_IF_ERROR(ClaimId("model.vocab", entry.key, id));
    file_->tokens[static_cast<size_t>(id)].in_vocab = true;
    ids_[entry.key] = static_cast<int32_t>(id);
  }
  return {};
}

Status Reader::ReadAddedToken(const object& entry, const std::string& field) {
  int64_t id = 0;
  std::string_view content;
  bool special = false;
  bool normalized = false;
  KURUMA_RETURN_IF_ERROR(Get(entry, "id", field + ".id", &id));
  KURUMA_RETURN_IF_ERROR(Get(entry, "content", field + ".content", &content));
  KURUMA_RETURN_IF_ERROR(Get(entry, "special", field + ".special", &special));
  KURUMA_RETURN_IF_ERROR(Get(entry, "normalized", field + ".normalized", &normalized));
  for (const std::string_view key : {"single_word", "lstrip", "rstrip"}) {
    KURUMA_RETURN_IF_ERROR(CheckUnset(entry, key, fmt::format("{}.{}", field, key)));
  }
  const auto in_vocab = ids_.find(content);
  if (in_vocab == ids_.end()) {
    KURUMA_RETURN_IF_ERROR(ClaimId(field, content, id));
  } else if (in_vocab->second != id) {
    return Error(field, fmt::format("\"{}\" has id {} here and {} in model.vocab", content, id,
                                    in_vocab->second));
  }
  FileToken& token = file_->tokens[static_cast<size_t>(id)];
  if (token.added) return Error(field, fmt::format("\"{}\" is there twice", content));
  token.added = true;
  token.special = special;
  token.normalized = normalized;
  return {};
}

Status Reader::ReadAddedTokens(const array& added) {
  size_t index = 0;
  for (const element entry_element : added) {
    const std::string field = fmt::format("added_tokens[{}]", index++);
    object entry;
    KURUMA_RETURN_IF_ERROR(As(entry_element, field, &entry));
    KURUMA_RETURN_IF_ERROR(ReadAddedToken(entry, field));
  }
  return {};
}

Status Reader::ReadBytes() {
  for (FileToken& token : file_->tokens) {
    // An added token decodes to its literal text; so does a vocabulary entry that is not spelled in
    // the byte alphabet.
    std::optional<std::string> bytes;
    if (!token.added) bytes = BytesOfSpelling(token.text);
    token.bytes = bytes ? *std::move(bytes) : token.text;
  }
  for (size_t letter = 0; letter < kByteOfLetter.size(); ++letter) {
    if (kByteOfLetter[letter] < 0) continue;
    std::string spelling;
    AppendCodePoint(static_cast<uint32_t>(letter), &spelling);
    const auto found = ids_.find(spelling);
    if (found == ids_.end()) {
      return Error("model.vocab", fmt::format("has no token for byte {} (\"{}\")",
                                              kByteOfLetter[letter], spelling));
    }
    file_->byte_ids[static_cast<size_t>(kByteOfLetter[letter])] = found->second;
  }
  return {};
}

Status Reader::ReadMerge(const element& entry, const std::string& field, Merge* merge) {
  std::string_view left;
  std::string_view right;
  std::string_view line;
  array pair;
  if (entry.get(line) == simdjson::SUCCESS) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return Error(field, fmt::format("\"{}\" must be two pieces with one space between", line));
    }
    left = line.substr(0, space);
    right = line.substr(space + 1);
  } else if (entry.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
    KURUMA_RETURN_IF_ERROR(As(pair.at(0).value_unsafe(), field + "[0]", &left));
    KURUMA_RETURN_IF_ERROR(As(pair.at(1).value_unsafe(), field + "[1]", &right));
  } else {
    return Error(field, "must be a string or an array of two strings");
  }
  const std::string result = std::string(left).append(right);
  int32_t* const targets[] = {&merge->left, &merge->right, &merge->result};
  const std::string_view pieces[] = {left, right, result};
  for (int i = 0; i < 3; ++i) {
    const auto found = ids_.find(pieces[i]);
    if (found == ids_.end()) {
      return Error(field, fmt::format("\"{}\" is not in model.vocab", pieces[i]));
    }
    *targets[i] = found->second;
  }
  return {};
}

Status Reader::ReadMerges(const array& merges) {
  std::unordered_map<uint64_t, size_t> seen;
  for (const element entry : merges) {
    const size_t rank = file_->merges.size();
    const std::string field = fmt::format("model.merges[{}]", rank);
    Merge merge{};
    KURUMA_RETURN_IF_ERROR(ReadMerge(entry, field, &merge));
    const uint64_t pair =
        static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    if (const auto [first, is_new] = seen.emplace(pair, rank); !is_new) {
      return Error(field, fmt::format("repeats model.merges[{}]", first->second));
    }
    file_->merges.push_back(merge);
  }
  return {};
}

Status Reader::Read(const element& root_element) {
  object root;
  object model;
  object vocab;
  array added;
  array merges;
  KURUMA_RETURN_IF_ERROR(As(root_element, "top level", &root));
  KURUMA_RETURN_IF_ERROR(Get(root, "model", "model", &model));
  KURUMA_RETURN_IF_ERROR(CheckModel(model));
  KURUMA_RETURN_IF_ERROR(CheckPipeline(root));
  KURUMA_RETURN_IF_ERROR(Get(model, "vocab", "model.vocab", &vocab));
  KURUMA_RETURN_IF_ERROR(Get(model, "merges", "model.merges", &merges));
  KURUMA_RETURN_IF_ERROR(Get(root, "added_tokens", "added_tokens", &added));
  KURUMA_RETURN_IF_ERROR(CountTokens(vocab, added));
  KURUMA_RETURN_IF_ERROR(ReadVocab(vocab));
  KURUMA_RETURN_IF_ERROR(ReadAddedTokens(added));
  KURUMA_RETURN_IF_ERROR(ReadBytes());
  return ReadMerges(merges);
}

}  // namespace

Result<TokenizerFile> ReadTokenizerJson(std::string_view json, const std::string& name) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::error_code error = parser.parse(json.data(), json.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return DataLoss(fmt::format("{}: not valid JSON: {}", name, simdjson::error_message(error)));
  }
  TokenizerFile file;
  KURUMA_RETURN_IF_ERROR(Reader(name, &file).Read(root));
  return file;
}

}  // namespace kuruma::text
