// What of a request matters to the form of its answer, for kuruma parse.
#ifndef KURUMA_APPS_PARSE_REQUEST_H_
#define KURUMA_APPS_PARSE_REQUEST_H_

#include <nlohmann/json.hpp>
#include <string>

#include "api/answer.h"
#include "base/status.h"
#include "text/parser.h"

namespace kuruma {

struct AnswerPlan {
  text::ParserOptions parser;
  api::AnswerOptions answer;  // without `stream`; ids are fixed
};

// Reads "protocol" and "request" of an input line. Chat requests are checked as the server checks
// them; of the others only the fields named in docs/cli.md are read. kInvalidArgument for a request
// that is refused or a protocol that is unknown.
Result<AnswerPlan> PlanAnswer(const std::string& protocol, const nlohmann::ordered_json& request);

}  // namespace kuruma

#endif  // KURUMA_APPS_PARSE_REQUEST_H_
