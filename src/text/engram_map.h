// The token classes that DeepSeek-V4.1's Engram tables are addressed by: ids whose texts are equal
// after normalisation share a class.
#ifndef KURUMA_TEXT_ENGRAM_MAP_H_
#define KURUMA_TEXT_ENGRAM_MAP_H_

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace kuruma::text {

struct TokenClasses {
  std::vector<int32_t> class_of;  // [vocab_size], class of each id
  int32_t num_classes = 0;        // classes are 0..num_classes-1 in order of first appearance
};

// Computes the classes. The key of an id is its decoded text, normalised: NFKC, NFD, all marks
// (Mn, Mc, Me) removed, lower case per character, runs of space, tab, CR, LF to one space, outer
// spaces stripped unless a single space is all there is. A text that normalises to nothing keeps
// its original as key; an id that decodes to U+FFFD has its spelling in the file as key. With the
// V4.1 tokenizer there are 99092 classes, the config's engram_compressed_vocab_size: callers check.
// About 0.1 s; any thread. Source: the checkpoint's engram recipe.
TokenClasses ComputeTokenClasses(const Tokenizer& tokenizer);

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_ENGRAM_MAP_H_
