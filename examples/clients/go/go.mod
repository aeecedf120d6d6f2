module waypost.example/client

go 1.26

require golang.org/x/crypto v0.31.0

require golang.org/x/sys v0.28.0 // indirect
