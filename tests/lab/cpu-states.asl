  Scope (\_SB) {
    Name (LCST, Package () { 3,
      Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0) }, 1, 2,   1000 },
      Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0) }, 1, 20,   500 },
      Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0) }, 1, 200,  100 } })
    Name (LPCT, Package () { ResourceTemplate () { Register (SystemIO, 8, 0, 0xB3) }, ResourceTemplate () { Register (SystemIO, 8, 0, 0xB3) } })
    Name (LPSS, Package () {
      Package () { 3000, 100000, 10, 10, 0x1E, 0x1E },
      Package () { 2000,  60000, 10, 10, 0x14, 0x14 },
      Package () { 1000,  30000, 10, 10, 0x0A, 0x0A } })
  }
