// The input items of a Responses request; private to the api module.
#ifndef KURUMA_API_RESPONSE_ITEMS_H_
#define KURUMA_API_RESPONSE_ITEMS_H_

#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/request_parts.h"
#include "api/responses.h"
#include "base/status.h"
#include "text/json.h"
#include "text/prompt.h"

namespace kuruma::api {

// Tools of a Responses request, found in `tools` and in the results of tool searches.
struct ResponseTools {
  ToolList list;
  std::vector<NamespacedTool> namespaced;
  std::vector<std::string> custom;
};

// Adds one entry of a `tools` array, with `defer_loading` set to `deferred` if that is true. Kinds
// that other servers would run themselves are left out.
Status AddResponseTool(const text::JsonValue& value, const std::string& path, bool deferred,
                       ResponseTools* tools);

// The name that the model sees.
std::string FullName(const std::string& name_space, const std::string& name);

// Turns input items into messages of a conversation, in order: reasoning, text and calls of one
// turn into one assistant message. One thread; the tools must outlive it.
class ItemReader {
 public:
  explicit ItemReader(ResponseTools* tools) : tools_(tools) {}

  // `instructions` and `input` of the body.
  Status Read(const Fields& body);

  // Whether an assistant message after the last user message has no reasoning.
  bool lacks_reasoning() const;

  std::vector<text::Message> Take() { return std::move(messages_); }

 private:
  Status ReadItem(const text::JsonValue& value, const std::string& path);
  Status ReadMessage(const Fields& item);
  Status ReadContent(const Fields& owner, std::string_view key, text::Message* message);
  Status ReadPart(const Fields& part, text::Message* message);
  Status ReadReasoning(const Fields& item);
  Status ReadCall(const Fields& item, const std::string& type);
  Status ReadOutput(const Fields& item);
  Status ReadSearchOutput(const Fields& item);
  text::Message& OpenAssistant();
  void AddClosed(text::Message message);

  ResponseTools* tools_;
  std::vector<text::Message> messages_;
  bool is_open_ = false;   // the last message is of the assistant and may grow
  bool has_text_ = false;  // the open message has text
  bool has_calls_ = false;
};

}  // namespace kuruma::api

#endif  // KURUMA_API_RESPONSE_ITEMS_H_
