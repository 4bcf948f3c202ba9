#include "text/unicode_classes.h"

#include <algorithm>

namespace kuruma::text {

const CodeClassTable& CodeClassTable::Get() {
  static const CodeClassTable table;
  return table;
}

CodeClassTable::CodeClassTable() {
  auto range = kCodeRanges.begin();
  for (uint32_t high = 0; high < index_.size(); ++high) {
    Block block{};
    for (uint32_t low = 0; low < block.size(); ++low) {
      const uint32_t code = high << 8 | low;
      while (range != kCodeRanges.end() && range->last < code) ++range;
      if (range != kCodeRanges.end() && range->first <= code) block[low] = range->code_class;
    }
    // Most blocks repeat (unassigned planes, ideographs); equal ones are stored once.
    const auto found = std::find(blocks_.begin(), blocks_.end(), block);
    index_[high] = static_cast<uint16_t>(found - blocks_.begin());
    if (found == blocks_.end()) blocks_.push_back(block);
  }
}

}  // namespace kuruma::text
