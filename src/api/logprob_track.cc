#include "api/logprob_track.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kuruma::api {

void LogprobTrack::Push(const TokenPiece& piece, int top_logprobs) {
  Pending pending;
  pending.entry.chosen = {tokenizer_.TokenBytes(piece.token), piece.logprob};
  const auto count = std::min(piece.top.size(), static_cast<size_t>(std::max(top_logprobs, 0)));
  for (const TopToken& top : piece.top.first(count)) {
    if (top.token < 0 || top.token >= tokenizer_.vocab_size()) continue;
    pending.entry.top.push_back({tokenizer_.TokenBytes(top.token), top.logprob});
  }
  pending.text = decoder_.Push(piece.token);
  pending_.push_back(std::move(pending));
}

void LogprobTrack::EndText() {
  const std::string rest = decoder_.Finish();
  if (!pending_.empty()) pending_.back().text += rest;
}

std::vector<LogprobEntry> LogprobTrack::Release(std::string_view text) {
  std::vector<LogprobEntry> entries;
  while (!text.empty() && !pending_.empty()) {
    Pending& front = pending_.front();
    const std::string_view rest = std::string_view(front.text).substr(front.shown);
    const auto [in_rest, in_text] =
        std::mismatch(rest.begin(), rest.end(), text.begin(), text.end());
    const auto common = static_cast<size_t>(in_rest - rest.begin());
    if ((common > 0 || front.text.empty()) && !front.is_listed) {
      front.is_listed = true;
      entries.push_back(std::move(front.entry));
    }
    front.shown += common;
    text.remove_prefix(common);
    if (common == rest.size()) {
      pending_.pop_front();
    } else if (!text.empty()) {
      // The texts differ: the parser has dropped newlines of this token, or `text` begins with
      // markup of a damaged call whose tokens were cleared.
      if (rest[common] == '\n') {
        ++front.shown;
      } else {
        text.remove_prefix(1);
      }
    }
  }
  return entries;
}

}  // namespace kuruma::api
