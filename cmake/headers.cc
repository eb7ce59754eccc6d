// What a target that exists for its precompiled header compiles (cmake/lethe.cmake).
