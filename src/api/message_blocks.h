// The messages of a Messages request; private to the api module.
#ifndef KURUMA_API_MESSAGE_BLOCKS_H_
#define KURUMA_API_MESSAGE_BLOCKS_H_

#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/request_parts.h"
#include "base/status.h"
#include "text/json.h"
#include "text/prompt.h"

namespace kuruma::api {

// Turns system text and messages made of blocks into messages of a conversation, in order.
// One thread; the tools must outlive it.
class BlockReader {
 public:
  explicit BlockReader(const ToolList& tools) : tools_(tools) {}

  // `system` of the body, if any: a string or text blocks.
  Status ReadSystem(const Fields& body);

  // `messages` of the body. There is at least one message afterwards.
  Status ReadMessages(const Fields& body);

  // Whether an assistant message after the last user message has no thinking block.
  bool lacks_reasoning() const { return lacks_reasoning_; }

  std::vector<text::Message> Take() { return std::move(messages_); }

 private:
  Status ReadMessage(const text::JsonValue& value, std::string path);
  Status ReadUser(const Fields& message, const text::JsonValue::Array& blocks);
  Status ReadUserBlock(const Fields& block, const std::string& type);
  Status ReadToolResult(const Fields& block);
  Status ReadToolResultPart(const Fields& part, text::Message* message);
  Status ReadAssistant(const Fields& message, const text::JsonValue::Array& blocks);
  Status ReadAssistantBlock(const Fields& block, text::Message* message);
  Status ReadSystemMessage(const Fields& message, const text::JsonValue::Array& blocks);
  Result<text::Tool> Declared(const std::string& name, const std::string& field) const;
  void Add(text::Message message);
  void AddReferences();

  const ToolList& tools_;
  std::vector<text::Message> messages_;
  std::vector<text::Tool> references_;  // tools that results since the last block asked for
  bool has_calls_ = false;
  bool lacks_reasoning_ = false;
  bool has_text_ = false;      // of the assistant message being read
  bool has_thinking_ = false;  // of the assistant message being read
};

}  // namespace kuruma::api

#endif  // KURUMA_API_MESSAGE_BLOCKS_H_
