# All third-party code comes from Debian 12 packages (tools/scripts/packages.txt).
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Protobuf REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(Boost 1.74 REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)

# Debian's libsimgrid-dev and libyaml-dev ship pkg-config files and no CMake packages.
pkg_check_modules(SIMGRID REQUIRED IMPORTED_TARGET simgrid)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)

# RapidCheck and METIS ship neither; METIS serves only as a baseline in tests.
find_path(RAPIDCHECK_INCLUDE_DIR rapidcheck.h REQUIRED)
find_library(RAPIDCHECK_LIBRARY rapidcheck REQUIRED)
add_library(rapidcheck::rapidcheck UNKNOWN IMPORTED)
set_target_properties(rapidcheck::rapidcheck PROPERTIES
  IMPORTED_LOCATION ${RAPIDCHECK_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RAPIDCHECK_INCLUDE_DIR})
find_path(METIS_INCLUDE_DIR metis.h REQUIRED)
find_library(METIS_LIBRARY metis REQUIRED)
add_library(metis::metis UNKNOWN IMPORTED)
set_target_properties(metis::metis PROPERTIES
  IMPORTED_LOCATION ${METIS_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${METIS_INCLUDE_DIR})

# Mixed-integer programs (planners/kit/milp). Without CBC the planners that need it say so.
option(ORRERY_WITH_CBC "Use CBC where it is installed" ON)
if(ORRERY_WITH_CBC)
  pkg_check_modules(CBC IMPORTED_TARGET cbc)
endif()
if(NOT TARGET PkgConfig::CBC)
  message(STATUS "Building without a solver for mixed-integer programs (coinor-libcbc-dev)")
endif()

# Matrix products of the CPU executor; without OpenBLAS they are Eigen's.
option(ORRERY_WITH_OPENBLAS "Use OpenBLAS where it is installed" ON)
if(ORRERY_WITH_OPENBLAS)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
endif()
