# Flags and target helpers used by every folder.

# lethe_flags: warnings and the arithmetic rules of ARCHITECTURE.md ("Bits"): no contraction
# into fma behind our back, no libm call for sqrt. Both -fno options leave values alone.
# LETHE_ARCH may name a wider vector unit: bits do not depend on it (tests/vector_width).
set(LETHE_ARCH "x86-64-v3" CACHE STRING "Processor level for -march, x86-64-v3 or above")
add_library(lethe_flags INTERFACE)
target_include_directories(lethe_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lethe_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-march=${LETHE_ARCH} -ffp-contract=off -fno-math-errno -fno-trapping-math
  -Wall -Wextra -Wshadow -Wconversion>)
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  target_compile_options(lethe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on moved strings at -O2 (GCC bugs 105329, 105651).
  target_compile_options(lethe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overread>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(lethe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
# Everywhere, so that one precompiled header fits all: gRPC's users get it anyway.
target_compile_options(lethe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-pthread>)
target_link_options(lethe_flags INTERFACE -pthread)
target_compile_definitions(lethe_flags INTERFACE HWY_DISABLE_PCLMUL_AES)
if(LETHE_CUDA)
  # As on the CPU: a multiplication and an addition become one fma only where the source says so.
  target_compile_options(lethe_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
  target_compile_definitions(lethe_flags INTERFACE LETHE_CUDA=1)
endif()
if(LETHE_SANITIZE)
  add_compile_options(-fsanitize=${LETHE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LETHE_SANITIZE})
endif()

# lethe_join_files(target): compiles up to eight of its files as one, since most of a file's compile time is its headers. A file
# that shares a name with another's anonymous namespace has SKIP_UNITY_BUILD_INCLUSION, or gives the name up.
function(lethe_join_files target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(LETHE_JOIN_FILES AND count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# lethe_headers(name FILE DEPS …): compiles a header once, for the libraries of folders that set LETHE_LIBRARY_HEADERS to the name.
function(lethe_headers name file)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  if(LETHE_JOIN_FILES)
    add_library(${name} STATIC ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
    target_link_libraries(${name} PRIVATE lethe_flags ${ARG_DEPS})
    target_precompile_headers(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/${file}>")
  endif()
endfunction()

# lethe_reuse_headers(target [headers]): where there are any.
function(lethe_reuse_headers target)
  if(LETHE_JOIN_FILES AND ARGN)
    target_precompile_headers(${target} REUSE_FROM ${ARGN})
  endif()
endfunction()

# lethe_library(name SOURCES a.cc … [CUDA_SOURCES a.cu …] [DEPS t …] [PRIVATE_DEPS t …]): the target lethe_<name>, alias
# lethe::<name>. Without LETHE_CUDA the CUDA sources stay out, and LETHE_ON_CUDA (kernels/base/on_cuda.h) leaves out their calls.
function(lethe_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA_SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(LETHE_CUDA)
    list(APPEND ARG_SOURCES ${ARG_CUDA_SOURCES})
  endif()
  if(ARG_SOURCES)
    add_library(lethe_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(lethe_${name} PUBLIC lethe_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
    target_compile_options(lethe_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${LETHE_LIBRARY_OPTIONS}>)
    lethe_join_files(lethe_${name})
    lethe_reuse_headers(lethe_${name} ${LETHE_LIBRARY_HEADERS})
  else()
    add_library(lethe_${name} INTERFACE)
    target_link_libraries(lethe_${name} INTERFACE lethe_flags ${ARG_DEPS})
  endif()
  add_library(lethe::${name} ALIAS lethe_${name})
endfunction()

# lethe_program(name SOURCES … DEPS …): an executable that links the fault switch that is always off.
function(lethe_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE lethe_flags ${ARG_DEPS} lethe::fault_none)
  lethe_join_files(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# lethe_test_headers(name FILE [DEPS …]): as lethe_headers, for the tests of folders that set LETHE_TEST_HEADERS to the name. An
# executable, as the tests are: its code is position-independent in the same way.
function(lethe_test_headers name file)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  if(LETHE_JOIN_FILES)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
    target_link_libraries(${name} PRIVATE lethe_flags ${ARG_DEPS} lethe::testing GTest::gmock GTest::gtest_main)
    target_compile_options(${name} PRIVATE ${LETHE_TEST_OPTIONS})
    target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/testing/${file})
  endif()
endfunction()

# lethe_test(path_without_slashes SOURCES … DEPS … [LABELS …] [TIMEOUT s] [ONE_PROCESS]): a GoogleTest program, one ctest per
# test case, or with ONE_PROCESS one for all. Tests link the fault switch of tests/testing, so that mutants can be turned on.
function(lethe_test name)
  cmake_parse_arguments(ARG "ONE_PROCESS" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE lethe_flags ${ARG_DEPS} lethe::testing GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${LETHE_TEST_OPTIONS})
  target_link_options(${name} PRIVATE ${LETHE_TEST_LINK_OPTIONS})
  target_compile_definitions(${name} PRIVATE
    LETHE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LETHE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  lethe_join_files(${name})
  lethe_reuse_headers(${name} ${LETHE_TEST_HEADERS})
  string(REPLACE ";" "\\;" labels "${ARG_LABELS}")
  if(ARG_ONE_PROCESS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${labels}")
  else()
    include(GoogleTest)
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${labels}")
  endif()
endfunction()
