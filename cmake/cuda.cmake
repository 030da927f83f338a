# CUDA and NCCL of the executor: used where they are found, else left out. Sets ORRERY_CUDA and
# ORRERY_NCCL; the executor then says at run time what it was built without.
find_program(ORRERY_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
  PATH_SUFFIXES bin)
if(ORRERY_NVCC OR DEFINED ENV{CUDACXX} OR CMAKE_CUDA_COMPILER)
  set(cuda_is_here ON)
else()
  set(cuda_is_here OFF)
endif()
option(ORRERY_WITH_CUDA "Use CUDA, and NCCL, where they are installed" ${cuda_is_here})
set(ORRERY_CUDA OFF)
set(ORRERY_NCCL OFF)

if(ORRERY_WITH_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND ORRERY_NVCC)
    set(CMAKE_CUDA_COMPILER ${ORRERY_NVCC})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)  # Before enable_language, which sets a default.
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(ORRERY_WITH_CUDA AND CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know C++20 of nvcc.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  string(APPEND CMAKE_CUDA_FLAGS " -Xcompiler=-fPIC,-fvisibility=hidden")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # CUDA::cudart beside the static default would be both.
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  # Green contexts by count came with 12.4, cudaGetDriverEntryPointByVersion with 12.5.
  find_package(CUDAToolkit 12.5)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cublas)
    set(ORRERY_CUDA ON)
    find_path(NCCL_INCLUDE_DIR nccl.h
      HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY nccl
      HINTS ${CUDAToolkit_LIBRARY_DIR} ENV NCCL_HOME PATH_SUFFIXES lib lib64)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
      set(ORRERY_NCCL ON)
    endif()
  endif()
endif()
message(STATUS "CUDA back end: ${ORRERY_CUDA}; NCCL transport: ${ORRERY_NCCL}")
