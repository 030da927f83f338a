# Writes OUTPUT, a C++ source with the program's version and the hashes of the sources that decide
# results (experiments/study/version.h): one of what all runs share (models, sim, traces,
# experiments/study, and of planners what no single one owns), and one of each planner and recovery
# policy, so that a change of one says nothing about the results of the others. A part has the files
# of its folder, and what they include from other planners. Run with -D ROOT= -D VERSION= -D OUTPUT=
# -P.
cmake_minimum_required(VERSION 3.25)

# Files that one planner or policy owns; the catalogs decide nothing but who is found.
set(policy "^planners/recovery/([a-z_]+)(/|\\.cpp$)")
set(planner "^planners/([a-z_]+)/")
set(common "^planners/(kit|mixed_length|modules|recovery/kit)/")
set(catalogs "^planners/(recovery/)?catalog\\.cpp$")

# The part that a file belongs to: "planner metis", "policy varuna", "" for what is shared.
function(part_of file out)
  set(part "")
  if(file MATCHES "${common}")
  elseif(file MATCHES "${policy}")
    set(part "policy ${CMAKE_MATCH_1}")
  elseif(NOT file MATCHES "^planners/recovery/" AND file MATCHES "${planner}")
    set(part "planner ${CMAKE_MATCH_1}")
  endif()
  set(${out} "${part}" PARENT_SCOPE)
endfunction()

# The files, and what they include that belongs to other parts than the shared one: headers with
# their sources.
function(with_included out)
  set(todo ${ARGN})
  set(done)
  while(todo)
    list(POP_FRONT todo file)
    if(file IN_LIST done)
      continue()
    endif()
    list(APPEND done ${file})
    file(STRINGS ${ROOT}/${file} lines REGEX "^#include \"planners/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" header "${line}")
      part_of(${header} part)
      if(part)
        list(APPEND todo ${header})
        string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
        if(EXISTS ${ROOT}/${source})
          list(APPEND todo ${source})
        endif()
      endif()
    endforeach()
  endwhile()
  list(SORT done)
  set(${out} ${done} PARENT_SCOPE)
endfunction()

function(hash_of out)
  set(all "")
  foreach(file ${ARGN})
    file(SHA1 ${ROOT}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
  string(SHA1 hash "${all}")
  set(${out} ${hash} PARENT_SCOPE)
endfunction()

set(shared)
set(parts)
foreach(folder models planners sim traces experiments/study)
  file(GLOB_RECURSE found RELATIVE ${ROOT}
    ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.proto)
  foreach(file ${found})
    if(file MATCHES "${catalogs}")
      continue()
    endif()
    part_of(${file} part)
    if(NOT part)
      list(APPEND shared ${file})
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${part}" id)
    list(APPEND parts ${part})
    list(APPEND files_${id} ${file})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES parts)
list(SORT parts)

# What shared code includes of a planner is shared.
set(including)
foreach(file ${shared})
  file(STRINGS ${ROOT}/${file} lines REGEX "^#include \"planners/" LIMIT_COUNT 1)
  if(lines)
    list(APPEND including ${file})
  endif()
endforeach()
with_included(included ${including})
list(APPEND shared ${included})
list(REMOVE_DUPLICATES shared)
list(SORT shared)
hash_of(hash ${shared})
set(rows "    {\"\", \"${hash}\", false},\n")

foreach(part IN LISTS parts)
  string(MAKE_C_IDENTIFIER "${part}" id)
  with_included(files ${files_${id}})
  hash_of(hash ${files})
  # One that walks the catalog of planners depends on all of them.
  set(walks false)
  foreach(file ${files})
    file(STRINGS ${ROOT}/${file} lines REGEX "[ (:]catalog\\(\\)" LIMIT_COUNT 1)
    if(lines)
      set(walks true)
    endif()
  endforeach()
  string(APPEND rows "    {\"${part}\", \"${hash}\", ${walks}},\n")
endforeach()

file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "experiments/study/version.h"

namespace orrery::experiments {

const char* const kVersionNumber = "@VERSION@";

const std::vector<SourceHash>& source_hashes() {
  static const std::vector<SourceHash> kHashes = {
@rows@  };
  return kHashes;
}

}  // namespace orrery::experiments
]] @ONLY)
