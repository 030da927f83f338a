# Writes OUTPUT, a header with ORRERY_MODULE_STAMP: the version, a hash of all headers that a module
# may include, and the compiler. Run with -D ROOT= -D VERSION= -D COMPILER= -D OUTPUT= -P.
set(files)
foreach(folder models planners)
  file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/${folder}/*.h)
  list(APPEND files ${found})
endforeach()
list(SORT files)
set(all "")
foreach(file ${files})
  file(SHA1 ${ROOT}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA1 hash "${all}")
string(SUBSTRING ${hash} 0 8 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once
#define ORRERY_MODULE_STAMP "@VERSION@, headers @hash@, @COMPILER@"
]] @ONLY)
