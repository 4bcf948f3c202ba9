#include "batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "interrupt.h"
#include "report.h"
#include "text_stream.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

// One sample of a request. `stream` and `tokens` are the engine thread's until `end` is there.
struct Sample {
  std::unique_ptr<TextStream> stream;
  std::vector<int32_t> tokens;
  std::optional<engine::Event> end;
};

class Batch {
 public:
  Batch(const LoadedModel& loaded, std::vector<FileRequest> requests, const BatchOptions& options)
      : loaded_(loaded),
        options_(options),
        requests_(std::move(requests)),
        samples_(requests_.size()) {}

  Result<int> Run(const std::string& name) {
    engine::EngineOptions engine_options = options_.engine;
    for (const FileRequest& r : requests_) engine_options.max_queue += r.request.n;
    KURUMA_ASSIGN_OR_RETURN(engine_, engine::Engine::Create(loaded_.model.get(), engine_options));
    for (const FileRequest& r : requests_) {
      const Status fits = engine_->Check(r.request);
      if (!fits.ok()) {
        return Status(fits.code(), fmt::format("{}:{}: {}", name, r.line, fits.message()));
      }
    }
    const CatchInterrupt catch_interrupt;
    const Stopwatch watch;
    std::vector<RequestId> ids;
    for (size_t i = 0; i < requests_.size(); ++i) {
      KURUMA_ASSIGN_OR_RETURN(const RequestId id, Submit(i));
      ids.push_back(id);
    }
    const bool written = WriteAll(ids);
    const engine::EngineCounts counts = engine_->counts();
    if (!options_.quiet) fmt::print(stderr, "{}", Statistics(counts, watch.ms()));
    if (!written) return kExitBadInput;
    if (CatchInterrupt::Pressed()) return kExitInterrupted;
    return failed_ ? kExitOurFault : kExitOk;
  }

 private:
  Result<RequestId> Submit(size_t i) {
    FileRequest& r = requests_[i];
    samples_[i] = std::vector<Sample>(static_cast<size_t>(r.request.n));
    for (Sample& sample : samples_[i]) {
      sample.stream = std::make_unique<TextStream>(loaded_.tokenizer.get(), r.stops,
                                                   [](std::string_view) { return true; });
    }
    engine::Request request = r.request;
    request.digests = options_.digests;
    request.stops = [this, i](int number, int32_t token) { return Stops(i, number, token); };
    return engine_->Submit(std::move(request), [this, i](const engine::Event& e) { Take(i, e); });
  }

  bool Stops(size_t i, int number, int32_t token) {
    const FileRequest& r = requests_[i];
    if (std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end()) {
      return true;
    }
    Sample& sample = samples_[i][static_cast<size_t>(number)];
    const auto count = static_cast<int64_t>(sample.tokens.size()) + 1;
    return sample.stream->Push(token, count >= r.request.sampling.min_tokens) != SinkVerdict::kGoOn;
  }

  void Take(size_t i, const engine::Event& event) {
    Sample& sample = samples_[i][static_cast<size_t>(event.sample)];
    if (event.kind == engine::Event::Kind::kToken) {
      sample.tokens.push_back(event.token.token);
      return;
    }
    const std::lock_guard lock(mutex_);
    sample.end = event;
    changed_.notify_all();
  }

  // False: nobody reads them.
  bool WriteAll(const std::vector<RequestId>& ids) {
    Progress progress("running requests", static_cast<int64_t>(ids.size()));
    bool cancelled = false, written = true;
    for (size_t i = 0; i < ids.size(); ++i) {
      std::unique_lock lock(mutex_);
      const auto is_done = [&] {
        return std::all_of(samples_[i].begin(), samples_[i].end(),
                           [](const Sample& s) { return s.end.has_value(); });
      };
      // Looks up from time to time, since Ctrl-C wakes nobody.
      while (!changed_.wait_for(lock, std::chrono::milliseconds(50), is_done)) {
        if (cancelled || !(CatchInterrupt::Pressed() || !written)) continue;
        cancelled = true;
        for (const RequestId id : ids) engine_->Cancel(id);
      }
      lock.unlock();
      if (written) written = WriteOut(options_.json ? JsonLine(i) : Text(i));
      progress.Update(static_cast<int64_t>(i) + 1);
    }
    return written;
  }

  Json SampleJson(Sample* sample) {
    const engine::Event& end = *sample->end;
    Json out{{"tokens", sample->tokens}, {"text", nullptr}, {"finish", Name(end.reason)}};
    if (loaded_.tokenizer != nullptr) out["text"] = sample->stream->Finish();
    out["cached_tokens"] = end.cached_tokens;
    out["preemptions"] = end.preemptions;
    if (options_.digests) out["digest"] = end.digest;
    if (!end.error.ok()) out["error"] = end.error.message();
    failed_ = failed_ || !end.error.ok();
    return out;
  }

  // The first sample at the top level, and if there are more all of them in `samples`.
  std::string JsonLine(size_t i) {
    const FileRequest& r = requests_[i];
    Json all = Json::array();
    for (Sample& sample : samples_[i]) {
      Json entry{{"index", all.size()}};
      entry.update(SampleJson(&sample));
      all.push_back(std::move(entry));
    }
    Json line{{"id", r.id}};
    line.update(all[0]);
    line.erase("index");
    line["prompt_tokens"] = r.request.prompt.size();
    line["seed"] = r.request.sampling.seed;
    if (all.size() > 1) line["samples"] = std::move(all);
    return Dump(line) + "\n";
  }

  std::string Text(size_t i) {
    std::string out;
    for (size_t k = 0; k < samples_[i].size(); ++k) {
      Sample& sample = samples_[i][k];
      const Json& id = requests_[i].id;
      const std::string number = samples_[i].size() > 1 ? fmt::format(", sample {}", k) : "";
      out += fmt::format("== {}{} ({})\n", id.is_string() ? id.get<std::string>() : Dump(id),
                         number, Name(sample.end->reason));
      out += sample.stream->Finish() + "\n";
      if (!sample.end->error.ok()) {
        failed_ = true;
        out += fmt::format("error: {}\n", sample.end->error.message());
      }
    }
    return out;
  }

  std::string Statistics(const engine::EngineCounts& c, double ms) const {
    return fmt::format(
        "[{} requests; prompt {} tokens, {} cached; answer {} tokens, {:.1f} tok/s; {} steps, "
        "{:.1f} "
        "rows each; {} preemptions]\n",
        requests_.size(), c.prompt_tokens, c.cached_tokens, c.tokens,
        static_cast<double>(c.tokens) * 1000 / ms, c.steps,
        static_cast<double>(c.rows) / static_cast<double>(std::max<int64_t>(1, c.steps)),
        c.preemptions);
  }

  const LoadedModel& loaded_;
  const BatchOptions& options_;
  std::vector<FileRequest> requests_;
  std::vector<std::vector<Sample>> samples_;  // by request
  bool failed_ = false;
  std::mutex mutex_;  // of Sample::end
  std::condition_variable changed_;
  std::unique_ptr<engine::Engine> engine_;  // last, so that its thread ends first
};

}  // namespace

Result<int> RunBatch(const LoadedModel& loaded, std::vector<FileRequest> requests,
                     const BatchOptions& options, const std::string& name) {
  return Batch(loaded, std::move(requests), options).Run(name);
}

}  // namespace kuruma
