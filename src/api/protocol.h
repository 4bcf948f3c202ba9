// The wire formats that clients may speak.
#ifndef KURUMA_API_PROTOCOL_H_
#define KURUMA_API_PROTOCOL_H_

namespace kuruma::api {

enum class Protocol { kChat, kCompletions, kMessages, kResponses };

}  // namespace kuruma::api

#endif  // KURUMA_API_PROTOCOL_H_
