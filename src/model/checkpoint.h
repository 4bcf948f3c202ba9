// A sharded safetensors checkpoint as one set of named tensors.
#ifndef KURUMA_MODEL_CHECKPOINT_H_
#define KURUMA_MODEL_CHECKPOINT_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/safetensors.h"

namespace kuruma::model {

// The shards of DIR named by model.safetensors.index.json (or a lone model.safetensors). Opening
// maps files and reads headers only, so a checkpoint larger than memory opens in a moment.
// Immutable; any thread. Tensors stay valid as long as the object.
class Checkpoint {
 public:
  // kNotFound / kDataLoss name the file (and tensor): no index, a shard missing or damaged, a
  // tensor that the index places in a shard which lacks it.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& directory, ReadScope scope);

  // Tensor of that name, or null.
  const TensorInfo* Find(std::string_view name) const;
  // File that holds the tensor, for messages; the directory when there is none.
  std::string FileOf(std::string_view name) const;

  // Names in lexical order.
  std::vector<std::string> Names() const;
  const std::string& directory() const { return directory_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& shards() const { return shards_; }

 private:
  struct Place {
    const TensorInfo* info;
    const SafetensorsFile* shard;
  };
  Checkpoint() = default;

  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::map<std::string, Place, std::less<>> tensors_;
};

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_CHECKPOINT_H_
