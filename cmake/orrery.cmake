# Build conventions of this repository: warnings as errors, include paths from the root, common
# standard headers precompiled once, and unity builds (the release preset sets CMAKE_UNITY_BUILD).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# The Python module is a shared library of the same objects. Hidden symbols keep their code as it is
# in a program: nothing is called through a table.
string(APPEND CMAKE_CXX_FLAGS " -fPIC -fvisibility=hidden")

include(dependencies) # Debian 12 packages only

# Debug information makes bfd take most of an incremental build; gold is part of binutils.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  find_program(ORRERY_LINKER NAMES ld.lld ld.gold)
  if(ORRERY_LINKER)
    string(REGEX REPLACE ".*ld\\." "" linker "${ORRERY_LINKER}")
    add_link_options(-fuse-ld=${linker})
  endif()
endif()

add_library(orrery_options INTERFACE)
# g++ is the compiler whose warnings are kept at none; clang has others.
target_compile_options(orrery_options INTERFACE
  $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra>
  $<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU>:-Wconversion>>
  $<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU>:-Werror>>)
target_include_directories(orrery_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
target_link_libraries(orrery_options INTERFACE fmt::fmt) # In the precompiled headers.

# For code that reads, prints, passes on or tests, and computes little: a quarter less compile time.
set(orrery_light $<$<CONFIG:Release>:-O1>)

# Headers that most sources include, compiled once for libraries, for light ones and for tests.
option(ORRERY_PRECOMPILE "Precompile the headers that most sources include" ON)
if(ORRERY_PRECOMPILE AND CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(APPEND CMAKE_CXX_FLAGS " -fpch-preprocess") # ccache needs it to see through them
endif()
function(orrery_precompiled name header)
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cpp)
  target_link_libraries(${name} PUBLIC orrery_options ${ARGN})
  if(ORRERY_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${header})
  endif()
endfunction()
orrery_precompiled(orrery_precompiled precompiled.h)
orrery_precompiled(orrery_precompiled_light precompiled.h)
orrery_precompiled(orrery_precompiled_tests precompiled_tests.h GTest::gtest)
target_compile_options(orrery_precompiled_light PRIVATE ${orrery_light})
target_compile_options(orrery_precompiled_tests PRIVATE ${orrery_light})

function(orrery_use_precompiled target from)
  if(ORRERY_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()

function(orrery_make_light target from)
  target_compile_options(${target} PRIVATE ${orrery_light})
  orrery_use_precompiled(${target} ${from})
endfunction()

# Links `target` to libraries; names of our own are given without the prefix orrery_.
function(orrery_link target scope)
  foreach(lib ${ARGN})
    if(TARGET orrery_${lib})
      set(lib orrery_${lib})
    elseif(NOT TARGET ${lib} AND NOT lib MATCHES "^(orrery_.*|dl)$")
      message(FATAL_ERROR "${target}: no target ${lib}")
    endif()
    target_link_libraries(${target} ${scope} ${lib})
  endforeach()
endfunction()

# orrery_protobuf(generated models/ir wire program) sets `generated` to the C++ of these .proto files
# of a folder, which its .cpp files include. Each may import the first.
function(orrery_protobuf out folder)
  set(all)
  list(GET ARGN 0 first)
  foreach(proto ${ARGN})
    set(file ${CMAKE_BINARY_DIR}/generated/${folder}/${proto}.pb)
    add_custom_command(
      OUTPUT ${file}.cc ${file}.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/generated
      COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}
              --cpp_out=${CMAKE_BINARY_DIR}/generated ${folder}/${proto}.proto
      DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/${proto}.proto
              ${CMAKE_SOURCE_DIR}/${folder}/${first}.proto
      VERBATIM)
    set_source_files_properties(${file}.cc PROPERTIES COMPILE_OPTIONS -w)
    list(APPEND all ${file}.cc)
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

# orrery_library(models_cost SOURCES a.cpp b.cpp PUBLIC models_base PRIVATE Boost::headers)
# declares the target orrery_<name>. LIGHT: with little optimization.
function(orrery_library name)
  cmake_parse_arguments(arg "LIGHT" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(orrery_${name} STATIC ${arg_SOURCES})
  orrery_link(orrery_${name} PUBLIC ${arg_PUBLIC})
  orrery_link(orrery_${name} PRIVATE ${arg_PRIVATE})
  target_link_libraries(orrery_${name} PUBLIC orrery_options)
  if(arg_LIGHT)
    orrery_make_light(orrery_${name} orrery_precompiled_light)
  else()
    orrery_use_precompiled(orrery_${name} orrery_precompiled)
  endif()
  orrery_unity(orrery_${name})
endfunction()

# In a unity build, a dozen sources are one unit: fewer pay more for one changed file, more take
# longer from scratch. Names in anonymous namespaces are unique within a target.
function(orrery_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# orrery_test(models_cost_collectives LABELS law SOURCES collectives_test.cpp LIBS models_cost)
# declares one ctest entry. All entries of a folder share one GoogleTest program, whose tests are
# told apart by their suites, so that a suite belongs to one entry; OWN_PROGRAM gives an entry a
# program for itself (a main() of its own, an environment that others do not bear).
function(orrery_test name)
  cmake_parse_arguments(arg "OWN_PROGRAM" "" "LABELS;SOURCES;LIBS" ${ARGN})
  set(filter)
  if(arg_OWN_PROGRAM)
    set(program ${name}_test)
    add_executable(${program} ${arg_SOURCES})
  else()
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER ${folder} folder)
    set(program ${folder}_tests)
    orrery_suites(suites ${arg_SOURCES})
    foreach(suite ${suites})
      get_property(owner GLOBAL PROPERTY orrery_suite_${program}_${suite})
      if(owner)
        message(SEND_ERROR "the test suite ${suite} stands in ${owner} and in ${name}")
      endif()
      set_property(GLOBAL PROPERTY orrery_suite_${program}_${suite} ${name})
      string(APPEND filter ":${suite}.*:*/${suite}.*:${suite}/*")
    endforeach()
    string(REGEX REPLACE "^:" "--gtest_filter=" filter "${filter}")
    if(TARGET ${program})
      get_target_property(have ${program} SOURCES)
      list(REMOVE_ITEM arg_SOURCES ${have})
      target_sources(${program} PRIVATE ${arg_SOURCES})
    else()
      add_executable(${program} ${arg_SOURCES})
    endif()
  endif()
  orrery_link(${program} PRIVATE ${arg_LIBS})
  target_link_libraries(${program} PRIVATE orrery_options orrery_test_main GTest::gtest)
  orrery_make_light(${program} orrery_precompiled_tests)
  set_target_properties(${program} PROPERTIES UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 6)
  add_test(NAME ${name} COMMAND ${program} ${filter} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # RapidCheck draws the same cases in every run; by hand (without RC_PARAMS) it draws new ones.
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 ENVIRONMENT "RC_PARAMS=seed=1")
endfunction()

# A library that is loaded before the C library of programs which may have sanitizers of their own.
function(orrery_preloaded name source)
  add_library(${name} SHARED ${source})
  target_link_libraries(${name} PRIVATE orrery_options ${CMAKE_DL_LIBS})
  target_compile_options(${name} PRIVATE -fno-sanitize=all)
  target_link_options(${name} PRIVATE -fno-sanitize=all)
endfunction()

# The GoogleTest suites that stand in source files.
function(orrery_suites out)
  set(found)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^ *(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\\(")
    foreach(line ${lines})
      string(REGEX REPLACE "^ *[A-Z_]+\\( *([A-Za-z0-9_]+).*" "\\1" suite "${line}")
      list(APPEND found ${suite})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()
