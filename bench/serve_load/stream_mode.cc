// Modes with streams: RunStreams and RunSoak.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "modes.h"
#include "server_process.h"

namespace kuruma::load {
namespace {

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

float MsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<float, std::milli>(to - from).count();
}

// Pieces of text in events of a chat stream; the first event has an empty one.
int CountTokens(std::string_view events) {
  constexpr std::string_view kContent = "\"content\":\"";
  int count = 0;
  for (size_t at = events.find(kContent); at != std::string_view::npos;
       at = events.find(kContent, at)) {
    at += kContent.size();
    if (at < events.size() && events[at] != '"') ++count;
  }
  return count;
}

class StreamLoad {
 public:
  StreamLoad(const Target& target, size_t streams, double delay_ms)
      : target_(target),
        delay_ms_(static_cast<float>(delay_ms)),
        request_(ChatRequest(target, /*stream=*/true)),
        streams_(streams),
        crowd_(target.port, {.on_body = [this](size_t c, std::string_view b) { Body(c, b); },
                             .on_answer = [this](size_t c, const ReplyHead&) { Ended(c); },
                             .on_broken = [this](size_t c) { Ended(c); }}) {}

  Json Run(double ramp_s) {
    constexpr double kPatienceSeconds = 30;
    const Clock::time_point ramp = Clock::now();
    for (size_t i = 0; i < streams_.size(); ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(streams_.size());
      PollUntil(ramp + Seconds(ramp_s * share));
      const size_t client = crowd_.Open();
      streams_[client].sent = Clock::now();
      crowd_.Send(client, request_);
    }
    const Clock::time_point last = Clock::now() + Seconds(kPatienceSeconds);
    while (Clock::now() < last && begun_ + ended_early_ < streams_.size()) crowd_.Poll(last);
    measures_ = true;
    const double cpu = CpuSeconds(target_.pid), own_cpu = OwnCpuSeconds();
    const Clock::time_point start = Clock::now();
    PollUntil(start + Seconds(target_.seconds));
    const double seconds = MsBetween(start, Clock::now()) / 1000;
    const auto tokens = static_cast<double>(tokens_);
    const auto ended = std::count_if(streams_.begin(), streams_.end(),
                                     [](const Stream& stream) { return stream.ended; });
    return {{"mode", "streams"},
            {"streams", streams_.size()},
            {"delay_ms", delay_ms_},
            {"begun", begun_},
            {"alive_at_end", streams_.size() - static_cast<size_t>(ended)},
            {"ended_early", ended},
            {"tokens_per_s", tokens / seconds},
            {"share_of_scripted_rate",
             tokens / seconds * delay_ms_ / 1000 / static_cast<double>(streams_.size())},
            {"added_gap_ms", Quantiles(std::move(added_ms_))},
            {"first_token_ms", Quantiles(std::move(first_ms_))},
            {"server_cpu_us_per_token", 1e6 * (CpuSeconds(target_.pid) - cpu) / tokens},
            {"server_cores", (CpuSeconds(target_.pid) - cpu) / seconds},
            {"generator_cpu_us_per_token", 1e6 * (OwnCpuSeconds() - own_cpu) / tokens}};
  }

 private:
  struct Stream {
    Clock::time_point sent;
    std::optional<Clock::time_point> last;  // token
    bool ended = false;
  };

  void PollUntil(Clock::time_point end) {
    while (Clock::now() < end) crowd_.Poll(end);
  }

  void Body(size_t client, std::string_view bytes) {
    const int count = CountTokens(bytes);
    if (count == 0) return;
    Stream& stream = streams_[client];
    const Clock::time_point now = Clock::now();
    if (!stream.last) {
      ++begun_;
      first_ms_.push_back(MsBetween(stream.sent, now));
    } else if (measures_) {
      // Tokens that come together waited for each other: the first one's gap is what a reader sees.
      added_ms_.push_back(MsBetween(*stream.last, now) - delay_ms_);
    }
    if (measures_) tokens_ += count;
    stream.last = now;
  }

  void Ended(size_t client) {
    Stream& stream = streams_[client];
    stream.ended = true;
    if (!stream.last) ++ended_early_;
  }

  const Target target_;
  const float delay_ms_;
  const std::string request_;
  std::vector<Stream> streams_;  // by client
  size_t begun_ = 0, ended_early_ = 0;
  bool measures_ = false;
  int64_t tokens_ = 0;
  std::vector<float> added_ms_, first_ms_;
  Crowd crowd_;
};

// Roles of the clients of a soak, by number: statistics, then short ones, then streams.
class SoakLoad {
 public:
  SoakLoad(const Target& target, const SoakOptions& options)
      : target_(target),
        options_(options),
        short_request_(ChatRequest(target, /*stream=*/false)),
        crowd_(target.port,
               {.on_body = [this](size_t c, std::string_view b) { Body(c, b); },
                .on_answer = [this](size_t c, const ReplyHead& head) { Answered(c, head); },
                .on_broken = [this](size_t c) { Broke(c); }}) {
    Target streams = target;
    streams.prompt = options.stream_prompt;
    streams.max_tokens = options.stream_tokens;
    stream_request_ = ChatRequest(streams, /*stream=*/true);
  }

  Json Run() {
    const size_t clients = 1 + options_.connections + options_.streams;
    tokens_.resize(clients);
    leaves_.resize(clients);
    for (size_t i = 0; i < clients; ++i) {
      crowd_.Open();
      if (i > 0) Next(i);
    }
    start_ = Clock::now();
    const Clock::time_point end = start_ + Seconds(target_.seconds);
    Clock::time_point sample = start_;
    while (Clock::now() < end) {
      if (Clock::now() >= sample) {
        if (stats_.empty()) crowd_.Send(0, "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
        sample += Seconds(options_.sample_s);
      }
      crowd_.Poll(std::min(sample, end));
      LeaveSome();
    }
    return Report();
  }

 private:
  struct Sample {
    double s, bytes, files;
  };

  bool IsStream(size_t client) const { return client > options_.connections; }

  void Next(size_t client) {
    tokens_[client] = 0;
    if (IsStream(client)) leaves_[client] = ++begun_ % 2 == 0;
    crowd_.Send(client, IsStream(client) ? stream_request_ : short_request_);
  }

  void Body(size_t client, std::string_view bytes) {
    if (client == 0) stats_.append(bytes);
    if (!IsStream(client)) return;
    tokens_[client] += CountTokens(bytes);
    if (leaves_[client] && tokens_[client] > options_.stream_tokens / 2) leaving_.push_back(client);
  }

  void LeaveSome() {
    for (const size_t client : std::exchange(leaving_, {})) {
      if (tokens_[client] <= options_.stream_tokens / 2) continue;  // has ended since
      crowd_.Drop(client);
      ++left_;
      const size_t next = crowd_.Open();  // the same number: it is the only free one
      Next(next);
    }
  }

  void Answered(size_t client, const ReplyHead& head) {
    if (client == 0) return TakeSample();
    if (head.status != 200) ++errors_;
    ++(IsStream(client) ? streams_ : short_);
    Next(client);
  }

  void Broke(size_t client) {
    ++broken_;
    if (client == 0) return stats_.clear();
    Next(client);
  }

  void TakeSample() {
    const Json stats = Json::parse(std::exchange(stats_, ""), nullptr, /*exceptions=*/false);
    const Json::json_pointer resident("/memory/resident_bytes");
    if (!stats.is_object() || !stats.contains(resident)) return;
    samples_.push_back({MsBetween(start_, Clock::now()) / 1000, stats[resident].get<double>(),
                        static_cast<double>(OpenFiles(target_.pid))});
  }

  // Growth per second of a value, by least squares over the second half: the first one warms up.
  double Slope(double Sample::*value) const {
    const size_t from = samples_.size() / 2;
    const auto n = static_cast<double>(samples_.size() - from);
    double x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = from; i < samples_.size(); ++i) {
      x += samples_[i].s;
      y += samples_[i].*value;
      xx += samples_[i].s * samples_[i].s;
      xy += samples_[i].s * (samples_[i].*value);
    }
    const double spread = n * xx - x * x;
    return spread > 0 ? (n * xy - x * y) / spread : 0;
  }

  Json Report() const {
    Json points = Json::array();
    for (const Sample& sample : samples_) {
      points.push_back({std::round(sample.s), sample.bytes / (1 << 20), sample.files});
    }
    return {{"mode", "soak"},
            {"seconds", target_.seconds},
            {"short_answers", short_},
            {"whole_streams", streams_},
            {"left_streams", left_},
            {"errors", errors_},
            {"broken", broken_},
            {"resident_slope_bytes_per_s", Slope(&Sample::bytes)},
            {"files_slope_per_s", Slope(&Sample::files)},
            {"samples_s_mib_files", points}};
  }

  const Target target_;
  const SoakOptions options_;
  const std::string short_request_;
  std::string stream_request_;
  std::string stats_;
  std::vector<int> tokens_;      // of the answer so far, by client
  std::vector<bool> leaves_;     // in the middle of its answer, by client
  std::vector<size_t> leaving_;  // in the middle of a stream
  std::vector<Sample> samples_;
  int64_t begun_ = 0, short_ = 0, streams_ = 0, left_ = 0, errors_ = 0, broken_ = 0;
  Clock::time_point start_;
  Crowd crowd_;
};

}  // namespace

Json RunStreams(const Target& target, size_t streams, double delay_ms, double ramp_s) {
  return StreamLoad(target, streams, delay_ms).Run(ramp_s);
}

Json RunSoak(const Target& target, const SoakOptions& options) {
  return SoakLoad(target, options).Run();
}

}  // namespace kuruma::load
