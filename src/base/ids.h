// Numbers that name things, each a type of its own: a block can't be passed where a sequence is
// meant. Cast with static_cast, or with Index() to use one as an index.
#ifndef KURUMA_BASE_IDS_H_
#define KURUMA_BASE_IDS_H_

#include <cstddef>
#include <cstdint>

namespace kuruma {

enum class RequestId : uint64_t {};   // what a client asked; never reused in a process
enum class SequenceId : uint64_t {};  // one answer of a request being run; never reused
enum class BlockId : int32_t {};      // a place for the global KV of 128 tokens, 0..blocks-1
enum class SlotId : int32_t {};       // a place for the windows of a running sequence, 0..slots-1

constexpr size_t Index(BlockId id) { return static_cast<size_t>(id); }
constexpr size_t Index(SlotId id) { return static_cast<size_t>(id); }

}  // namespace kuruma

#endif  // KURUMA_BASE_IDS_H_
