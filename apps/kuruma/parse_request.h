// What of a request matters to the form of its answer, for kuruma parse.
#ifndef KURUMA_APPS_PARSE_REQUEST_H_
#define KURUMA_APPS_PARSE_REQUEST_H_

#include <nlohmann/json.hpp>
#include <string>

#include "api/answer.h"
#include "base/status.h"
#include "text/parser.h"
#include "text/tokenizer.h"

namespace kuruma {

struct AnswerPlan {
  text::ParserOptions parser;
  api::AnswerOptions answer;  // of one choice, without `stream`; ids are fixed
};

// Reads "protocol" and "request" of an input line as the server reads requests, but for what a
// grammar would have to enforce, which is let through, and the conversation, which may be missing.
// kInvalidArgument for a request that is refused or a protocol that is unknown.
Result<AnswerPlan> PlanAnswer(const text::Tokenizer& tokenizer, const std::string& protocol,
                              nlohmann::ordered_json request);

}  // namespace kuruma

#endif  // KURUMA_APPS_PARSE_REQUEST_H_
