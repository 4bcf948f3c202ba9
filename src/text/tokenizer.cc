#include "text/tokenizer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace kuruma::text {
namespace {

// Finds spellings of added tokens in text: leftmost, then longest.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;  // == begin: none
    int32_t id = -1;
  };

  void Add(std::string_view content, int32_t id) { entries_.emplace_back(content, id); }

  void Finish() {
    std::sort(entries_.begin(), entries_.end());
    for (const auto& [content, id] : entries_) starts_[static_cast<uint8_t>(content[0])] = true;
  }

  // The first match in text[pos, end).
  Match Find(std::string_view text, size_t pos, size_t end) const {
    if (entries_.empty()) return {};
    for (; pos < end; ++pos) {
      if (!starts_[static_cast<uint8_t>(text[pos])]) continue;
      if (const Match match = MatchAt(text, pos, end); match.end != match.begin) return match;
    }
    return {};
  }

 private:
  // Narrows the sorted entries byte by byte; an entry that ends at the current depth sorts first.
  Match MatchAt(std::string_view text, size_t pos, size_t end) const {
    Match best{pos, pos, -1};
    auto low = entries_.begin();
    auto high = entries_.end();
    for (size_t depth = 0; pos + depth < end && low != high; ++depth) {
      const auto key = static_cast<uint8_t>(text[pos + depth]);
      const auto byte_at = [depth](const Entry& entry) {
        return depth < entry.first.size() ? static_cast<uint8_t>(entry.first[depth]) : -1;
      };
      low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) < key; });
      high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) == key; });
      if (low != high && low->first.size() == depth + 1) {
        best.end = pos + depth + 1;
        best.id = low->second;
      }
    }
    return best;
  }

  using Entry = std::pair<std::string_view, int32_t>;
  std::vector<Entry> entries_;
  std::array<bool, 256> starts_ = {};
};

Result<std::string> ReadFile(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return NotFound(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) return NotFound(fmt::format("{}: not a regular file", path));
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) return NotFound(fmt::format("{}: cannot be read", path));
  return text;
}

}  // namespace

struct Tokenizer::Tables {
  std::vector<FileToken> tokens;
  std::optional<Bpe> bpe;
  // Hugging Face matches tokens that are not to be normalised first, the others in what is left.
  std::array<AddedTokenMatcher, 2> matchers;
  std::unordered_map<std::string_view, int32_t> added_ids;

  void AppendPlain(std::string_view text, std::vector<int32_t>* ids) const {
    PieceReader reader(text);
    std::string_view piece;
    while (reader.Next(&piece)) bpe->Append(piece, ids);
  }

  void AppendMatching(std::string_view text, size_t pass, std::vector<int32_t>* ids) const {
    if (pass == matchers.size()) return AppendPlain(text, ids);
    size_t pos = 0;
    while (pos < text.size()) {
      const AddedTokenMatcher::Match match = matchers[pass].Find(text, pos, text.size());
      if (match.end == match.begin) break;
      AppendMatching(text.substr(pos, match.begin - pos), pass + 1, ids);
      ids->push_back(match.id);
      pos = match.end;
    }
    AppendMatching(text.substr(pos), pass + 1, ids);
  }
};

namespace {

Status CheckUtf8(std::string_view text) {
  const std::optional<size_t> bad = FindInvalidUtf8(text);
  if (!bad) return {};
  return InvalidArgument(fmt::format("text is not valid UTF-8 at byte {}", *bad));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json, const std::string& name) {
  KURUMA_ASSIGN_OR_RETURN(TokenizerFile file, ReadTokenizerJson(json, name));
  auto tables = std::make_unique<Tokenizer::Tables>();
  tables->tokens = std::move(file.tokens);
  std::vector<std::string_view> mergeable;
  for (size_t i = 0; i < tables->tokens.size(); ++i) {
    const FileToken& token = tables->tokens[i];
    const auto id = static_cast<int32_t>(i);
    mergeable.push_back(token.in_vocab ? token.bytes : std::string_view());
    if (!token.added) continue;
    tables->added_ids.emplace(token.text, id);
    tables->matchers[token.normalized ? 1 : 0].Add(token.text, id);
  }
  for (AddedTokenMatcher& matcher : tables->matchers) matcher.Finish();
  tables->bpe.emplace(file.byte_ids, file.merges, mergeable);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(tables)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  KURUMA_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  return ParseTokenizer(json, path);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text) const {
  KURUMA_RETURN_IF_ERROR(CheckUtf8(text));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 1);
  tables_->AppendMatching(text, 0, &ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodePlain(std::string_view text) const {
  KURUMA_RETURN_IF_ERROR(CheckUtf8(text));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 1);
  tables_->AppendPlain(text, &ids);
  return ids;
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      return InvalidArgument(
          fmt::format("ids[{}] is {}; the tokenizer has ids 0..{}", i, ids[i], vocab_size() - 1));
    }
    const FileToken& token = tables_->tokens[static_cast<size_t>(ids[i])];
    if (!(skip_special && token.special)) bytes += token.bytes;
  }
  std::string text;
  AppendLossyUtf8(bytes, /*final=*/true, &text);
  return text;
}

TokenInfo Tokenizer::Token(int32_t id) const {
  KURUMA_CHECK(id >= 0 && id < vocab_size());
  const FileToken& token = tables_->tokens[static_cast<size_t>(id)];
  return {token.text, token.bytes, token.added, token.special};
}

std::string_view Tokenizer::TokenBytes(int32_t id) const { return Token(id).bytes; }

std::optional<int32_t> Tokenizer::AddedTokenId(std::string_view content) const {
  const auto found = tables_->added_ids.find(content);
  if (found == tables_->added_ids.end()) return std::nullopt;
  return found->second;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(tables_->tokens.size()); }

std::string StreamDecoder::Push(int32_t id) {
  std::string text;
  if (id < 0 || id >= tokenizer_->vocab_size()) return text;
  const TokenInfo token = tokenizer_->Token(id);
  if (skip_special_ && token.special) return text;
  pending_ += token.bytes;
  pending_.erase(0, AppendLossyUtf8(pending_, /*final=*/false, &text));
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text;
  AppendLossyUtf8(pending_, /*final=*/true, &text);
  pending_.clear();
  return text;
}

}  // namespace kuruma::text
