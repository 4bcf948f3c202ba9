#include "generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "interrupt.h"
#include "report.h"

namespace kuruma {
namespace {

Status CheckLength(const LoadedModel& loaded, size_t prompt, int64_t max_tokens) {
  const int64_t context = loaded.model->config().max_positions;
  const auto length = static_cast<int64_t>(prompt);
  if (length >= context) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens; the context is {}", length, context));
  }
  if (length + max_tokens > context) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens and max-tokens is {}; the context "
                    "is {}",
                    length, max_tokens, context));
  }
  return Status();
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Tokens of `prompt` that the state already holds: all of its own, or it is emptied.
int64_t Reuse(const LoadedModel& loaded, const std::vector<int32_t>& prompt,
              model::SequenceState* state) {
  const std::vector<int32_t>& held = state->tokens;
  const bool begins =
      held.size() < prompt.size() && std::equal(held.begin(), held.end(), prompt.begin());
  if (!begins) *state = model::SequenceState(loaded.model->layout());
  return state->position();
}

// Feeds the prompt; `*last` gets the result that holds its logits.
Status Prefill(const LoadedModel& loaded, const std::vector<int32_t>& prompt,
               model::SequenceState* state, model::ForwardResult* last) {
  const auto keep_result = [&](int64_t, const model::ForwardResult& pass) {
    if (!pass.logits.empty()) *last = pass;
    return CatchInterrupt::Pressed() ? Internal("interrupted") : Status();
  };
  const PromptPass rest{std::span(prompt).subspan(state->position()), model::LogitRows::kLast};
  return FeedPrompt(loaded, rest, state, keep_result);
}

}  // namespace

Result<Generation> Generate(const LoadedModel& loaded, GenerationInput input,
                            model::SequenceState* state, const TokenSink& sink) {
  model::Model& model = *loaded.model;
  KURUMA_RETURN_IF_ERROR(CheckLength(loaded, input.prompt.size(), input.max_tokens));
  input.sampling.end_tokens = input.stop_tokens;
  if (!input.ignore_eos) input.sampling.end_tokens.push_back(model.config().eos_token);
  KURUMA_RETURN_IF_ERROR(engine::CheckSamplingParams(input.sampling, model.config().vocab));
  engine::Sampler sampler(std::move(input.sampling));
  const engine::SamplingParams& params = sampler.params();

  const CatchInterrupt catch_interrupt;
  Generation out;
  model::ForwardResult result;
  const Stopwatch prefill;
  out.reused_tokens = Reuse(loaded, input.prompt, state);
  const Status fed = Prefill(loaded, input.prompt, state, &result);
  out.prefill_ms = prefill.ms();
  if (CatchInterrupt::Pressed()) {
    *state = model::SequenceState(model.layout());  // a prompt cut short cannot be gone on with
    out.finish_reason = "interrupted";
    return out;
  }
  KURUMA_RETURN_IF_ERROR(fed);
  const Stopwatch decode;
  while (out.finish_reason.empty()) {
    KURUMA_ASSIGN_OR_RETURN(
        engine::SampledToken drawn,
        sampler.Sample(result.Row(0), {input.prompt, out.ids}, state->position()));
    const int32_t token = drawn.token;
    out.ids.push_back(token);
    out.sampled.push_back(std::move(drawn));
    const auto count = static_cast<int64_t>(out.ids.size());
    const bool ends = Contains(params.end_tokens, token);
    const SinkVerdict verdict = ends ? SinkVerdict::kStop : sink(token, count >= params.min_tokens);
    if (verdict == SinkVerdict::kStop) {
      out.finish_reason = "stop";
    } else if (CatchInterrupt::Pressed() || verdict == SinkVerdict::kReaderGone) {
      out.finish_reason = "interrupted";
    } else if (count >= input.max_tokens) {
      out.finish_reason = "length";
    } else {
      const model::SequenceInput next{state, {&token, 1}, 0, model::LogitRows::kLast};
      KURUMA_RETURN_IF_ERROR(model.Forward({&next, 1}, nullptr, &result));
      ++out.decode_steps;
    }
  }
  out.decode_ms = decode.ms();
  return out;
}

engine::SamplingParams DefaultSampling(const SamplingDefaults& defaults) {
  engine::SamplingParams s;
  s.temperature = defaults.temperature;
  s.top_p = defaults.top_p;
  s.top_k = defaults.top_k;
  s.min_p = defaults.min_p;
  s.repetition_penalty = defaults.repetition_penalty;
  s.seed = engine::DrawSeed();
  return s;
}

double PerSecond(double count, double ms) { return ms > 0 ? count * 1000 / ms : 0; }

std::string Statistics(const GenerationInput& input, const Generation& g) {
  const auto fed = static_cast<double>(input.prompt.size()) - static_cast<double>(g.reused_tokens);
  const std::string reused =
      g.reused_tokens > 0 ? fmt::format(" ({} reused)", g.reused_tokens) : "";
  return fmt::format(
      "prompt {} tokens{}, {:.1f} tok/s; answer {} tokens, {:.1f} tok/s; {}; seed {}",
      input.prompt.size(), reused, PerSecond(fed, g.prefill_ms), g.ids.size(),
      PerSecond(static_cast<double>(g.decode_steps), g.decode_ms), g.finish_reason,
      input.sampling.seed);
}

}  // namespace kuruma
