#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory_resource>

namespace kuruma::text {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
// Up to this length scanning for the lowest rank beats a heap.
constexpr size_t kShortPiece = 48;

uint64_t PairOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Fibonacci hashing: the high bits of a product with 2^64 / golden ratio.
size_t Slot(uint64_t key, int shift) {
  return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> shift);
}

uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  size_t pos = 0;
  for (; pos + 8 <= bytes.size(); pos += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + pos, 8);
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data() + pos, bytes.size() - pos);
  return (hash ^ tail) * 0xFF51AFD7ED558CCDu;
}

// log2 of a table size that keeps the load at or under a half.
int TableBits(size_t entries) { return std::bit_width(std::max<size_t>(entries, 2) * 2 - 1); }

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
         const std::vector<std::string_view>& token_bytes)
    : byte_ids_(byte_ids), token_bytes_(token_bytes) {
  const int rule_bits = TableBits(merges.size());
  rules_.resize(size_t{1} << rule_bits);
  rule_shift_ = 64 - rule_bits;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = PairOf(merges[rank].left, merges[rank].right);
    size_t slot = Slot(pair, rule_shift_);
    while (rules_[slot].pair != kNoPair) slot = (slot + 1) & (rules_.size() - 1);
    rules_[slot] = {pair, static_cast<uint32_t>(rank), merges[rank].result};
  }
  const int whole_bits = TableBits(token_bytes.size());
  whole_.assign(size_t{1} << whole_bits, -1);
  whole_shift_ = 64 - whole_bits;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    const std::string_view bytes = token_bytes[id];
    ids.clear();
    // The table has no entry for these bytes yet, so this merges them.
    if (!bytes.empty()) Append(bytes, &ids);
    if (ids.size() != 1 || ids[0] != static_cast<int32_t>(id)) continue;
    size_t slot = Slot(HashBytes(bytes), whole_shift_);
    while (whole_[slot] >= 0) slot = (slot + 1) & (whole_.size() - 1);
    whole_[slot] = ids[0];
  }
}

const Bpe::Rule* Bpe::Find(int32_t left, int32_t right) const {
  const uint64_t pair = PairOf(left, right);
  for (size_t slot = Slot(pair, rule_shift_);; slot = (slot + 1) & (rules_.size() - 1)) {
    if (rules_[slot].pair == pair) return &rules_[slot];
    if (rules_[slot].pair == kNoPair) return nullptr;
  }
}

int32_t Bpe::FindWhole(std::string_view piece) const {
  for (size_t slot = Slot(HashBytes(piece), whole_shift_);;
       slot = (slot + 1) & (whole_.size() - 1)) {
    const int32_t id = whole_[slot];
    if (id < 0 || token_bytes_[static_cast<size_t>(id)] == piece) return id;
  }
}

void Bpe::Append(std::string_view piece, std::vector<int32_t>* ids) const {
  if (const int32_t id = FindWhole(piece); id >= 0) {
    ids->push_back(id);
  } else if (piece.size() <= kShortPiece) {
    MergeShort(piece, ids);
  } else {
    MergeLong(piece, ids);
  }
}

void Bpe::MergeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;
    uint32_t rank;  // of the merge with the next symbol
    int32_t result;
  };
  std::array<Symbol, kShortPiece> symbols;
  size_t size = piece.size();
  for (size_t i = 0; i < size; ++i) symbols[i].id = byte_ids_[static_cast<uint8_t>(piece[i])];
  const auto refresh = [&](size_t i) {
    const Rule* rule = i + 1 < size ? Find(symbols[i].id, symbols[i + 1].id) : nullptr;
    symbols[i].rank = rule != nullptr ? rule->rank : kNoRank;
    symbols[i].result = rule != nullptr ? rule->result : 0;
  };
  for (size_t i = 0; i < size; ++i) refresh(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNoRank) break;
    symbols[best].id = symbols[best].result;
    Symbol* const gap = symbols.data() + best + 1;
    std::copy(gap + 1, symbols.data() + size, gap);
    --size;
    refresh(best);
    if (best > 0) refresh(best - 1);
  }
  for (size_t i = 0; i < size; ++i) ids->push_back(symbols[i].id);
}

void Bpe::MergeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  struct Symbol {
    int32_t id;  // -1: merged into an earlier one
    uint32_t previous;
    uint32_t next;
    uint32_t rank;  // of the merge with the next symbol
    int32_t result;
  };
  // Most pieces are short enough to be merged without the allocator.
  std::array<std::byte, size_t{16} << 10> buffer;
  std::pmr::monotonic_buffer_resource memory(buffer.data(), buffer.size());
  const auto size = static_cast<uint32_t>(piece.size());
  std::pmr::vector<Symbol> symbols(size, &memory);
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1, i + 1, kNoRank, 0};
  }
  symbols[0].previous = kEnd;
  symbols[size - 1].next = kEnd;
  // Candidates as rank and position in one number: the smallest is the next merge. One whose rank
  // is no longer that of its position is out of date.
  std::pmr::vector<uint64_t> heap(&memory);
  heap.reserve(size);
  const auto refresh = [&](uint32_t i) {
    Symbol& symbol = symbols[i];
    const Rule* rule = symbol.next == kEnd ? nullptr : Find(symbol.id, symbols[symbol.next].id);
    symbol.rank = rule != nullptr ? rule->rank : kNoRank;
    symbol.result = rule != nullptr ? rule->result : 0;
    if (rule != nullptr) heap.push_back(uint64_t{symbol.rank} << 32 | i);
    return rule != nullptr;
  };
  for (uint32_t i = 0; i < size; ++i) refresh(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto position = static_cast<uint32_t>(top);
    Symbol& left = symbols[position];
    if (left.rank != top >> 32) continue;
    Symbol& right = symbols[left.next];
    left.id = left.result;
    left.next = right.next;
    right.id = -1;
    right.rank = kNoRank;
    if (left.next != kEnd) symbols[left.next].previous = position;
    if (refresh(position)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (left.previous != kEnd && refresh(left.previous)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
}

}  // namespace kuruma::text
