// What requests of Messages, Responses and Completions may hold beyond the recorded rows, and what
// all protocols share.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/protocol.h"
#include "api/request_test_util.h"
#include "tests/support/byte_tokenizer.h"
#include "text/golden_test_util.h"

namespace kuruma::api {
namespace {

using text::ResponseFormat;
using text::ToolChoice;

TEST(Protocol, HasNames) {
  EXPECT_EQ(ProtocolOfName("chat"), Protocol::kChat);
  EXPECT_EQ(ProtocolOfName("responses"), Protocol::kResponses);
  EXPECT_EQ(ProtocolOfName("Chat"), std::nullopt);
}

TEST(Error, NamesTheField) {
  const ApiError error =
      ToApiError(ParseChatRequest(R"({"messages":[{"content":"x"}]})", {}).status());
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "messages[0].role");
  EXPECT_EQ(ErrorBody(Protocol::kChat, error),
            R"({"error":{"message":"'messages[0].role' is required",)"
            R"("type":"invalid_request_error","param":"messages[0].role",)"
            R"("code":"invalid_request_error"}})");
  EXPECT_EQ(ErrorBody(Protocol::kMessages, error),
            R"({"type":"error","error":{"type":"invalid_request_error",)"
            R"("message":"'messages[0].role' is required"}})");
}

TEST(Error, BodiesAreJsonWhateverTheMessage) {
  ApiError error{.status = 503, .message = "a\n\"b\xFF"};
  EXPECT_EQ(nlohmann::json::parse(ErrorBody(Protocol::kMessages, error))["error"]["type"],
            "overloaded_error");
  const auto body = nlohmann::json::parse(ErrorBody(Protocol::kResponses, error));
  EXPECT_EQ(body["error"]["type"], "server_error");
  EXPECT_TRUE(body["error"]["param"].is_null());
  error = {.status = 404, .message = "no", .code = "model_not_found"};
  EXPECT_EQ(nlohmann::json::parse(ErrorBody(Protocol::kChat, error))["error"]["code"],
            "model_not_found");
}

const char* const kExtras =
    R"("top_k":7,"min_p":0.1,"repetition_penalty":1.5,"stop_token_ids":[5,9],"ignore_eos":true,
       "include_stop_str_in_output":true,"min_tokens":3,"logit_bias":{"4":-1},
       "user":"u","cache_salt":"s","priority":-2)";

void CheckExtras(const SamplingOptions& sampling) {
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<int32_t>{5, 9}));
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_TRUE(sampling.include_stop);
  EXPECT_EQ(sampling.min_tokens, 3);
  EXPECT_EQ(sampling.logit_bias.size(), 1u);
}

TEST(Sampling, ExtrasAreReadInEveryProtocol) {
  for (const ChatRequest& request : {MustParse<Chat>(Hi(kExtras)), MustParse<Messages>(Hi(kExtras)),
                                     MustParse<Responses>(Input(kExtras))}) {
    CheckExtras(request.sampling);
    EXPECT_EQ(request.user, "u");
    EXPECT_EQ(request.cache_salt, "s");
    EXPECT_EQ(request.priority, -2);
  }
  const CompletionRequest request =
      MustParse<Completions>(std::string(R"({"prompt":"a",)") + kExtras + "}");
  CheckExtras(request.sampling);
  EXPECT_EQ(request.cache_salt, "s");
}

TEST(Sampling, OtherServersSpellings) {
  EXPECT_EQ(MustParse<Chat>(Hi(R"("top_k":-1)")).sampling.top_k, 0);
  EXPECT_EQ(MustParse<Chat>(Hi(R"("seq_seed":5)")).sampling.seed, 5);
  EXPECT_EQ(MustParse<Chat>(Hi(R"("seq_seed":18446744073709551615)")).sampling.seed, -1);
  EXPECT_EQ(MustParse<Chat>(Hi(R"("seq_seed":5,"seed":6)")).sampling.seed, 6);
  EXPECT_EQ(MustParse<Chat>(Hi(R"("user":"a","user_id":"b")")).user, "b");
}

TEST(Sampling, WrongValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":"7")", "top_k"},
      {R"("min_p":1.5)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("stop_token_ids":[1,"x"])", "stop_token_ids[1]"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("ignore_eos":1)", "ignore_eos"},
      {R"("include_stop_str_in_output":"no")", "include_stop_str_in_output"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens"},
      {R"("seq_seed":1.5)", "seq_seed"},
      {R"("priority":"high")", "priority"},
      {R"("user_id":"a b")", "user_id"},
      {R"("cache_salt":1)", "cache_salt"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias.1"},
      {R"("stream":true,"stream_options":{"continuous_usage_stats":1})",
       "stream_options.continuous_usage_stats"},
      {R"("add_generation_prompt":1)", "add_generation_prompt"},
  };
  for (const auto& [member, param] : cases) {
    const auto request = ParseChatRequest(Hi(member), {});
    ASSERT_FALSE(request.ok()) << member;
    EXPECT_EQ(ToApiError(request.status()).param, param) << member;
  }
}

TEST(Chat, StreamsCanReportUsageInEveryChunk) {
  const ChatRequest request = MustParse<Chat>(
      Hi(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.continuous_usage_stats);
}

TEST(Chat, TheAnswerHeaderCanBeLeftOut) {
  const std::string off = R"("thinking":false,"add_generation_prompt":false)";
  EXPECT_EQ(PromptOf<Chat>(Hi(off)), "<｜begin▁of▁sentence｜><｜User｜>hi");
  ErrorOf<Chat>(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],
      "continue_final_message":true,"add_generation_prompt":true})");
}

TEST(Chat, WhatNeedsAGrammarIsNamed) {
  EXPECT_TRUE(CheckEnforceable(MustParse<Chat>(Hi())).ok());
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}],)";
  EXPECT_TRUE(CheckEnforceable(MustParse<Chat>(Hi(tools + R"("tool_choice":"auto")"))).ok());
  const Status choice =
      CheckEnforceable(MustParse<Chat>(Hi(tools + R"("tool_choice":"required")")));
  EXPECT_EQ(choice.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Has(choice.message(), "tool_choice"));
  for (const char* format : {R"({"type":"json_object"})", R"({"type":"regex","regex":"a+"})",
                             R"({"type":"json_schema","json_schema":{"name":"n","schema":{}}})"}) {
    const Status status =
        CheckEnforceable(MustParse<Chat>(Hi(std::string("\"response_format\":") + format)));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Has(status.message(), "response formats"));
  }
}

TEST(Chat, ConstraintsOfOtherServersAreFormats) {
  const std::pair<const char*, ResponseFormat::Kind> cases[] = {
      {R"("structured_outputs":{"json":{"type":"object"}})", ResponseFormat::Kind::kJsonSchema},
      {R"("structured_outputs":{"regex":"a+"})", ResponseFormat::Kind::kRegex},
      {R"("structured_outputs":{"json_object":true})", ResponseFormat::Kind::kJsonObject},
      {R"("guided_json":{"type":"object"})", ResponseFormat::Kind::kJsonSchema},
      {R"("guided_regex":"a+")", ResponseFormat::Kind::kRegex},
  };
  for (const auto& [member, kind] : cases) {
    EXPECT_EQ(MustParse<Chat>(Hi(member)).conversation.response_format.kind, kind) << member;
  }
  for (const char* member : {R"("structured_outputs":{"choice":["a"]})", R"("guided_grammar":"x")",
                             R"("ebnf":"x")", R"("structured_outputs":{"json":{},"regex":"a"})",
                             R"("guided_regex":"a","response_format":{"type":"json_object"})"}) {
    ErrorOf<Chat>(Hi(member));
  }
  EXPECT_TRUE(Has(ErrorOf<Completions>(R"({"prompt":"a","guided_json":{}})"), "'guided_json'"));
}

TEST(Chat, ImagesAreParsedAndCanBeRefusedByTheServer) {
  const ChatRequest request = MustParse<Chat>(R"({"messages":[{"role":"user","content":[
      {"type":"image_url","image_url":{"url":"https://p.test/a.png"}}]}]})");
  EXPECT_EQ(request.conversation.messages[0].images.size(), 1u);
  EXPECT_EQ(CheckNoImages(request).message(), "images are not supported by this server yet");
  EXPECT_TRUE(CheckNoImages(MustParse<Chat>(Hi())).ok());
}

TEST(Messages, OptionsAreRead) {
  const ChatRequest request = MustParse<Messages>(Hi(R"("max_tokens":9,"stop_sequences":["A"],
      "stream":true,"metadata":{"user_id":"me"},"temperature":0.5,
      "tools":[{"name":"f","input_schema":{"type":"object"}}],
      "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
      "output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})"));
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"A"});
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.user, "me");
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.conversation.response_format.kind, ResponseFormat::Kind::kJsonSchema);
}

// A request to count tokens is one without max_tokens.
TEST(Messages, CountingNeedsNoMaxTokens) {
  EXPECT_EQ(MustParse<Messages>(Hi()).sampling.max_tokens, std::nullopt);
}

TEST(Messages, SystemTextIsCleaned) {
  EXPECT_EQ(MustParse<Messages>(Hi(R"("system":"x-anthropic-billing-header: a\nYou are")"))
                .conversation.messages[0]
                .content,
            "You are");
}

TEST(Messages, ErrorsNameTheBlock) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "'messages[0].content[0].text'"},
      {R"({"messages":[{"role":"user","content":[{"type":"mystery"}]}]})",
       "'messages[0].content[0].type'"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_use","id":"a","name":"b"}]}]})",
       "'messages[0].content[0].type'"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64",
          "media_type":"image/bmp","data":"AA=="}}]}]})",
       "'messages[0].content[0].source.media_type'"},
      {R"({"messages":[{"role":"user","content":"a"}],"system":[{"type":"image"}]})",
       "'system[0].type'"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f"}]})",
       "'tools[0].input_schema'"},
      {R"({"messages":[]})", "'messages'"},
      {R"({})", "'messages' is required"},
  };
  for (const auto& [body, field] : cases) {
    EXPECT_TRUE(Has(ErrorOf<Messages>(body), field)) << ErrorOf<Messages>(body);
  }
}

TEST(Messages, ReferencedToolsAreDeclaredBehindTheirResults) {
  const std::string prompt = PromptOf<Messages>(R"({"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
       {"type":"tool_reference","tool_name":"g"}]},{"type":"text","text":"go"}]}],
      "tools":[{"name":"f","input_schema":{"type":"object"}},
               {"name":"g","input_schema":{"type":"object"},"defer_loading":true}]})");
  EXPECT_TRUE(Has(prompt, "<tool_result>g</tool_result><｜System｜>\n\n### Updated Tool Schemas"));
  EXPECT_TRUE(prompt.ends_with("<｜User｜>go<｜Assistant｜><think>"));
}

TEST(Responses, OptionsAndEchoAreRead) {
  const auto request = ParseResponsesRequest(
      Input(R"("model":"m","instructions":"i","max_output_tokens":7,"temperature":0.5,
      "top_logprobs":2,"include":["message.output_text.logprobs"],"stream":true,"store":true,
      "parallel_tool_calls":false,"metadata":{"a":"b"},"user":"u",
      "reasoning":{"effort":"low"},"tool_choice":"none","tools":[{"type":"function","name":"f"}],
      "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}})"),
      {});
  ASSERT_TRUE(request.ok()) << request.status().message();
  const ChatRequest& chat = request->chat;
  EXPECT_EQ(chat.sampling.max_tokens, 7);
  EXPECT_TRUE(chat.sampling.logprobs);
  EXPECT_EQ(chat.sampling.top_logprobs, 2);
  EXPECT_TRUE(chat.stream);
  EXPECT_FALSE(chat.parallel_tool_calls);
  EXPECT_EQ(chat.tool_choice, ToolChoice::kNone);
  EXPECT_EQ(chat.conversation.effort, 50);
  EXPECT_EQ(chat.conversation.response_format.kind, ResponseFormat::Kind::kJsonSchema);
  const ResponsesEcho& echo = request->echo;
  EXPECT_EQ(echo.instructions, "i");
  EXPECT_EQ(echo.user, "u");
  EXPECT_EQ(echo.temperature, 0.5);
  EXPECT_EQ(echo.metadata, R"({"a": "b"})");
  EXPECT_EQ(echo.tool_choice, "\"none\"");
  EXPECT_EQ(echo.reasoning, R"({"effort": "low"})");
  EXPECT_EQ(echo.tools, R"([{"type": "function", "name": "f"}])");
  EXPECT_FALSE(echo.parallel_tool_calls);
}

TEST(Responses, CustomToolsTakeOneText) {
  const auto request = ParseResponsesRequest(
      Input(R"("tools":[{"type":"custom","name":"apply_patch","description":"Patch.",
          "format":{"type":"grammar","syntax":"lark","definition":"start: line"}}])"),
      {});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->custom_tools, std::vector<std::string>{"apply_patch"});
  const text::Tool& tool = request->chat.conversation.tools[0];
  EXPECT_TRUE(Has(tool.description, "start: line"));
  EXPECT_TRUE(Has(tool.parameters, "\"input\""));
}

TEST(Responses, ToolsMayBeFoundTwice) {
  const std::string found = R"({"type":"tool_search_call","call_id":"s","execution":"client",
      "arguments":{}},{"type":"tool_search_output","call_id":"s","execution":"client",
      "tools":[{"type":"function","name":"now"}]})";
  const ChatRequest request = MustParse<Responses>(R"({"input":[{"role":"user","content":"a"},)" +
                                                   found + "," + found + "]}");
  EXPECT_EQ(request.conversation.tools.size(), 1u);
  EXPECT_TRUE(request.conversation.tools[0].defer_loading);
}

TEST(Responses, ErrorsNameTheItem) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "'input' or 'instructions'"},
      {R"({"input":[{"foo":1}]})", "'input[0].type'"},
      {R"({"input":["x"]})", "'input[0]'"},
      {R"({"input":[{"role":"user","content":[{"type":"text","text":"x"}]}]})",
       "'input[0].content[0].type'"},
      {R"({"input":[{"type":"function_call","name":"f","arguments":"{}"}]})", "'input[0].call_id'"},
      {R"({"input":"x","include":[1]})", "'include[0]'"},
      {R"({"input":"x","metadata":[]})", "'metadata'"},
      {R"({"input":"x","text":{"format":{"type":"grammar"}}})", "'text.format.type'"},
      {R"({"input":"x","tools":[{"type":"custom","name":"other"}]})", "'tools[0].name'"},
  };
  for (const auto& [body, field] : cases) {
    EXPECT_TRUE(Has(ErrorOf<Responses>(body), field)) << ErrorOf<Responses>(body);
  }
}

TEST(Completions, PromptsComeInFourShapes) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(std::get<std::string>(MustParse<Completions>(R"({"prompt":"a"})").prompts[0]), "a");
  EXPECT_EQ(std::get<std::string>(MustParse<Completions>(R"({"prompt":["a","b"]})").prompts[1]),
            "b");
  EXPECT_EQ(std::get<Ids>(MustParse<Completions>(R"({"prompt":[1,2]})").prompts[0]), (Ids{1, 2}));
  EXPECT_EQ(std::get<Ids>(MustParse<Completions>(R"({"prompt":[[1],[2,3]]})").prompts[1]),
            (Ids{2, 3}));
  for (const char* prompt : {"null", "5", "{}", "[]", "[[]]", "[1,\"a\"]", "[\"a\",[1]]", "[1.5]",
                             "[-1]", "[4294967296]", "[[1],2]"}) {
    EXPECT_TRUE(Has(ErrorOf<Completions>(std::string("{\"prompt\":") + prompt + "}"), "'prompt"))
        << prompt;
  }
}

TEST(Completions, OptionsAreRead) {
  const CompletionRequest request =
      MustParse<Completions>(R"({"prompt":"a","logprobs":0,"echo":true,
      "n":2,"best_of":2,"stop":"S","seed":4,"model":"m","stream":true,
      "stream_options":{"include_usage":true}})");
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_TRUE(request.sampling.logprobs);
  EXPECT_EQ(request.sampling.top_logprobs, 0);
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.sampling.n, 2);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"S"});
  EXPECT_EQ(request.sampling.seed, 4);
  EXPECT_TRUE(request.include_usage);
  EXPECT_FALSE(MustParse<Completions>(R"({"prompt":"a"})").sampling.logprobs);
  ErrorOf<Completions>(R"({"prompt":"a","logprobs":21})");
  ErrorOf<Completions>(R"({"prompt":"a","logprobs":true})");
  ErrorOf<Completions>(R"({"prompt":"a","n":2,"best_of":3})");
  ErrorOf<Completions>(R"({"prompt":["a","b"],"suffix":"c"})");
  ErrorOf<Completions>(R"({"prompt":[1],"suffix":"c"})");
}

TEST(Completions, SuffixesFillTheMiddle) {
  const text::Tokenizer* tokenizer = text::GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  // Spelled control tokens stay text on both sides.
  const CompletionRequest request =
      MustParse<Completions>(R"({"prompt":"<｜User｜>","suffix":"x"})");
  const auto ids = EncodeCompletionPrompt(request, 0, *tokenizer);
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->size(), 1u + 1 + 5 + 1 + 1 + 1);
  EXPECT_EQ((*ids)[0], 0);
  EXPECT_EQ((*ids)[1], 128801);
  EXPECT_EQ((*ids)[7], 128800);
  EXPECT_EQ((*ids)[9], 128802);
  EXPECT_EQ(RenderFill("a", "b").text,
            "<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>");
}

TEST(Completions, SuffixesNeedTheirTokens) {
  const auto tokenizer = text::ParseTokenizer(testing::ByteTokenizer().dump(), "bytes.json");
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = EncodeCompletionPrompt(MustParse<Completions>(R"({"prompt":"a","suffix":"b"})"),
                                          0, **tokenizer);
  EXPECT_EQ(ToApiError(ids.status()).status, 400);
  EXPECT_TRUE(Has(ids.status().message(), "<｜fim▁begin｜>"));
}

TEST(Completions, PromptsAreEncodedAsAsked) {
  const text::Tokenizer* tokenizer = text::GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  using Ids = std::vector<int32_t>;
  const auto encode = [&](const char* body) {
    const auto ids = EncodeCompletionPrompt(MustParse<Completions>(body), 0, *tokenizer);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : Ids();
  };
  EXPECT_EQ(encode(R"({"prompt":"a<｜User｜>b"})"), (Ids{0, 67, 128803, 68}));
  EXPECT_EQ(encode(R"({"prompt":"<｜begin▁of▁sentence｜>a"})"), (Ids{0, 67}));
  EXPECT_EQ(encode(R"({"prompt":"a","add_special_tokens":false})"), (Ids{67}));
  EXPECT_EQ(encode(R"({"prompt":"<｜User｜>","parse_special":false})").size(), 6u);
  EXPECT_EQ(encode(R"({"prompt":[5,129279]})"), (Ids{5, 129279}));
  EXPECT_EQ(encode(R"({"prompt":""})"), (Ids{0}));
  const auto beyond =
      EncodeCompletionPrompt(MustParse<Completions>(R"({"prompt":[5,129280]})"), 0, *tokenizer);
  EXPECT_EQ(ToApiError(beyond.status()).status, 400);
  EXPECT_TRUE(Has(beyond.status().message(), "129280 at place 1"));
}

}  // namespace
}  // namespace kuruma::api
