# top comment
mt 1 # version

# about use


use "a.mt"   (A,B) # trailing
use "b.mt"
let k=3   let j = -k**-2
fn helper(x,y[B,T],z=none)->[B,T],f32{return -x+(-y)*z,x[:,0,..,*,1:2]}
fn long(aaaaaaaaaaaaaaaaaaaa [BBBBBBBB, TTTTTTTTT], bbbbbbbbbbbbbbbbbbbbbb i32[BBBBBBBB, TTTTTTTTTT], c f32) -> [BBBBBBBB, TTTTTTTTT] {
 # in body
 x=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa+bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb+cccccccccccccccccc*ddddddddd
 if x==3 and not y {z=1} else if z>=2 {q,r=split(x,2)} else { y=2 }
 if a { # why
   x = 1 }
 # before else
 else { x = 2 } # after

 for i in 0..4 { x=f(x,i, # first
    # own line
    g(y), h = 3) # end
 }


 return c?x:y as [B,T*2]
 # tail
}
block Empty() {}
block E2() {
}
block E3() { # c
}
model M(base:layer,V=3) { param w[..,base.In]=zeros state longer f32[3] = ones
 layer x[i in 0..4]=Foo(i==0?1:2) layer y=Bar()
 if V > 3 { layer z = Foo() } preset a {V=4} preset bcd {V=5 x = "héé"}
 require V>2,"msg"
}
train{a=1 "x","y"=2 freeze "z","*" group "x"{wd=0} eval{every=3} cc{x=2 # c
} phase q{steps=2}}
weights "hf"{"a"=b.c[i].T}
model D = M(V=3){wrap "a","b" with L(x=1)}
# end 1

# end 2
