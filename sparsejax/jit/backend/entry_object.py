"""The object file of `entry.TEXT` for x86-64.

Made by `python -m tools.objects`, which is to be run when that text has changed.
"""

DIGEST = "1f9cb095a8d196535e03523027100f4316de8af1283e5e735674bb522a5660f6"
"""That of the text."""

OBJECT = (
    "c-pO#&1(}u7{+JYT4MzhR8T}{sF#Ww4D=F|k}ag2rIR8}qk`73Z6~obn=PAZb)~UN+QYC2{t*fu1S|B=gNI1zhZhNYsTT`{inRsx"
    "V7*A!+3lnmV)o_(@6OC`o_S}Md1pF?x*H@3R3w2;P#sk@-c;>J`L~%llaOx8H{|PbQXWXa;!ZoH9~HWbtV|GEJ?+Svz8u~Szk`ua"
    "g){!vC{V1E?_s3NH_-_jjR3UYvYDxG@mZThU~$<Ow!b>L;cSVtA&N_g78W3ll@+?A6qnlJN^I4c-yU*p;nLOz$NhK@1OT{quChX*"
    "n=F|h7Qg&Z&i_Jm=U`nMq`xaW_-CH64$E9w_F958zRJ91#}NzLh-!06WW8`P9rCx%xPRSib?hN49box`h<-<O!%Y{LHWhn?d8a<R"
    "V}&jwt1ySCZ6`~RE+W3|qrxg6K8E)XQ7kL~(gLkm8Pc1<Z6BoT`x8&_+AaCEJSg9hQ-g~x+d5|3Ht^CL7ER#iKZXt#$3ervSm&3U"
    "ViBm5r_F;u_uv5!{?LOz_28xl@Acr42k+;tQ?89H{@D961>Pj^d4V4ic%xM1%>q9m@WTSXAaI|+BLY7n@P2`}2s|zDqXGxl%$Q-M"
    "`t&%~bi)K1)`rJT5HfI94H0~wa6^|mA{&_r4d)0L!$uBgK`5sa9O~&yUdj`7c#Ij5p39`V4PA3OPB7MG5}bEof*7N@jGP-uj6T31"
    "ZD8!=o>a4`ggS`_?iyGfsgQo0C%RFAnwrh(!yuF=22qDtYidq=HScEZ1ph%V`MuWa1&2#@>O|C8&YEj@wB~(?^)2cYznf?cFY_n1"
    "#>Y-AHSk(+begwU>YT~ZE2;kf*5Y}dw^no97?i5(>h1p*&7U<x"
)
"""What `loader.unpacked` takes."""
