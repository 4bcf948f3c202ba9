// Whether a sanitizer makes everything many times slower.
#ifndef KURUMA_TESTS_SUPPORT_SANITIZED_H_
#define KURUMA_TESTS_SUPPORT_SANITIZED_H_

namespace kuruma::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_SANITIZED_H_
