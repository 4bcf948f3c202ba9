# kuruma_compile_lightly(TARGET): for code that is no hot loop but includes large headers. -O1 takes a third less
# time to compile.
function(kuruma_compile_lightly name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# kuruma_module(NAME SOURCES a.cc ... [DEPS target ...])
# One static library per module, named kuruma_<name>; dependencies are public, as the include table allows them.
function(kuruma_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(kuruma_${name} STATIC ${ARG_SOURCES})
  target_include_directories(kuruma_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kuruma_${name} PUBLIC ${ARG_DEPS})
endfunction()

# kuruma_test(NAME SOURCES a_test.cc ... DEPS target ... [LABELS label ...] [SANITIZED_FILTER filter])
# One gtest program, one ctest entry. Tests find data through KURUMA_SOURCE_DIR and KURUMA_BINARY_DIR.
# Label "fast" marks what runs under AddressSanitizer and UBSan in CI, "threads" under
# ThreadSanitizer; there SANITIZED_FILTER is the --gtest_filter, for what takes minutes. Target kuruma_tests builds every test, kuruma_tests_<label> those with that label.
add_custom_target(kuruma_tests)
function(kuruma_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SANITIZED_FILTER" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  kuruma_compile_lightly(${name})
  target_compile_definitions(${name} PRIVATE KURUMA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             KURUMA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set(arguments "")
  if(KURUMA_SANITIZE AND ARG_SANITIZED_FILTER)
    set(arguments "--gtest_filter=${ARG_SANITIZED_FILTER}")
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arguments})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  add_dependencies(kuruma_tests ${name})
  foreach(label ${ARG_LABELS})
    if(NOT TARGET kuruma_tests_${label})
      add_custom_target(kuruma_tests_${label})
    endif()
    add_dependencies(kuruma_tests_${label} ${name})
  endforeach()
endfunction()

# kuruma_bench(NAME SOURCES a_bench.cc DEPS target ...): one Google Benchmark program.
function(kuruma_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main)
  target_compile_definitions(${name} PRIVATE KURUMA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             KURUMA_BINARY_DIR="${PROJECT_BINARY_DIR}")
endfunction()
