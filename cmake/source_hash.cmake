# Writes OUTPUT, a C++ source with the program's version and the hash of the sources that decide
# results (models, planners, sim, traces, experiments/study), so that results of other code are never taken
# for results of this one. Run with -D ROOT= -D VERSION= -D OUTPUT= -P.
set(files)
foreach(folder models planners sim traces experiments/study)
  file(GLOB_RECURSE found RELATIVE ${ROOT}
    ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.proto)
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
namespace orrery::experiments {
extern const char* const kProgramVersion;
const char* const kProgramVersion = "@VERSION@+@hash@";
}  // namespace orrery::experiments
]] @ONLY)
