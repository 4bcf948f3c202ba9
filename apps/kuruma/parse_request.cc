#include "parse_request.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "api/error.h"
#include "api/protocol.h"
#include "server/job.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;
using api::Protocol;

// A request that is only about the form of an answer needs no conversation.
void AddConversation(Protocol protocol, Json* request) {
  if (protocol == Protocol::kResponses) {
    if (!request->contains("input")) (*request)["input"] = "-";
  } else if (protocol == Protocol::kCompletions) {
    if (!request->contains("prompt")) (*request)["prompt"] = "";
  } else if (!request->contains("messages")) {
    (*request)["messages"] = {{{"role", "user"}, {"content", "-"}}};
  }
}

}  // namespace

Result<AnswerPlan> PlanAnswer(const text::Tokenizer& tokenizer, const std::string& protocol_name,
                              Json request) {
  const auto protocol = api::ProtocolOfName(protocol_name);
  if (!protocol) {
    return InvalidArgument(fmt::format(
        "'protocol' must be chat, completions, messages or responses, not \"{}\"", protocol_name));
  }
  AddConversation(*protocol, &request);
  const Json name = request.value("model", Json());
  server::ServedModel model;
  model.name = name.is_string() ? name.get<std::string>() : "";
  model.tokenizer = &tokenizer;
  model.context = int64_t{1} << 20;
  model.lets_constraints_pass = true;
  auto made = server::MakeJob(model, *protocol, request.dump());
  if (const auto* error = std::get_if<api::ApiError>(&made)) {
    return InvalidArgument(error->message);
  }
  server::Job& job = std::get<server::Job>(made);
  AnswerPlan plan{.parser = std::move(job.parser), .answer = std::move(job.answer)};
  plan.answer.id = server::IdPrefix(*protocol) + std::string("parse");
  plan.answer.id_seed = 0;
  plan.answer.created = 0;
  plan.answer.n = 1;
  if (plan.answer.echo.size() > 1) plan.answer.echo.resize(1);
  return plan;
}

}  // namespace kuruma
