// The requests of `kuruma generate --requests`: JSON Lines, one request each.
#ifndef KURUMA_APPS_REQUEST_FILE_H_
#define KURUMA_APPS_REQUEST_FILE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "model_loader.h"

namespace kuruma {

struct FileRequest {
  nlohmann::ordered_json id;         // as it was sent; else the request's number, from 0
  int64_t line = 0;                  // in the file, from 1
  engine::Request request;           // `stops` is left empty
  std::vector<std::string> stops;    // text that ends the answer
  std::vector<int32_t> stop_tokens;  // ids that end it, the end-of-sentence token among them
};

// What counts where a line does not say.
struct RequestDefaults {
  engine::SamplingParams sampling;
  int64_t max_tokens = 0;    // lowered to what the context leaves
  bool draws_seeds = false;  // a new seed for each line, instead of that of `sampling`
};

// Reads `path` (- is stdin). A line holds one of `prompt` (text), `messages` (Chat Completions) and
// `tokens` (ids), and any of the fields that the HTTP API takes. InvalidArgument names file, line
// and field; nothing is read in part.
Result<std::vector<FileRequest>> ReadRequests(const LoadedModel& loaded, const std::string& path,
                                              const RequestDefaults& defaults);

}  // namespace kuruma

#endif  // KURUMA_APPS_REQUEST_FILE_H_
