"""The object file of `allocator_text` for x86-64: compiling it takes 4 to 6 ms in a process that finds nothing on disk, a third of the first product.

Made by `python -m tools.allocator_object`, which is to be run when that text has changed.
"""

from __future__ import annotations

import base64
import zlib


def image() -> bytes:
    """The object file."""
    return zlib.decompress(base64.b85decode(_LETTERS))


TEXT = "4846bc87ab81f0142877c062d798c52e07d9ec48d377ed6524f279d6f56c24cc"
"""The digest of that text."""

_LETTERS = (
    "c-pO2e{2)i9e<Y}<k*07VS)6AMrgf_j5W+%CuX3{9ks_hbf!pw(lrAblH<qngEToqSOURvyyfZY4OOMvBs!S7Nt-HdqZ14wjoLWz"
    "g-YF^bZr4GNn1*8bD^G4oirr&zVG~;IH}#g_AKA`zMuQP@B99~>vAjKFW@+oSsZ#CO>@)hh%kLGvg;g>Jlh4gSooWP{qd?(YnO-d"
    "l~4R5CE?*hTw!3JaRiiMU#bMiS$e_3IwL$>g!TDU2j&KFu?YGi!qRR_tMpX$CQPm<`gbW8m%05s)~n28sZ=VCxiSE@mtlV&Un6aY"
    "JtC^cdNGxBT*p5>J|>of&cJo8)RDj|+IUQcuyFylrp({M1(Ww`BD<_rnK=&!Qri4YSYKsY9B7WrcwX(eK2x3ynLU;+!wgZHieTSe"
    "RD@9H4N!g*2e(#bVse3n<SY#+zA}s-<7^0>LpJ)<GXN|qN9Pe-fQ{o|k%0Z7Dm;1>FAD>=D$NbzWl>B<amBkhJW_~#NoxZcz=A7^"
    "ed7p~!FDB#ok`FV{hWX4@L(O=da0E%8H?SQ{oHTZWD-)y8`wE|;1NZCl9xs=OWZ}t_kOC7ZY;rpkR+VAAUiKh!V3{h#@yZ4yoN$T"
    "GPxXkJu>sWEz(x$DQSzexf=UFF2iKA-G<3s={yZVuN4QP*?F@x38B*;wsNcpVXw^-JZ~LG9<VF=LyqgQCA);BF0eNh^*EEluS4W&"
    ";&OLbd&W&Zm3$vjSr;*}-rb+hc}OcwL^$nI?CUe_afGlw&mP|(oO=Eil@wl#P`Tf4B=xsMg^ZYMCQ~Ve?BQd-1l;=&*1<d)bo~K)"
    "R{5xtH049)n?U8@b`I-qUeP=4HpMvx#$nx4hJBy;z$)Q*xI8TTq8tQUao!PL4)Futb-Ob5kRjg)HQsz;GF?O+lu~Uu6m<`Hc_=VY"
    "(+U06S5_naP}(MKmv(HM>K7>81N>ByZP@wF;S%#3p!4a7*^;E>3-YsEBJaA$q)d`>_;!KJC86r7q=dmKf;%oI{wXG+aO;Xg2F*ni"
    ";5q46AbsTu88r)m7Zd%QLK^LmXP4dPU7(OpFo~Kyla{D>n!|?6&eLP3{CAN~dy%ZWY08A3{Sgq4euz)k2kmD!nUH)p(&-(}ObNX+"
    "EMn)7a6E+9blS^>6Jb8={gQd)E~L(BYGu?8O_fvskfA#u?w;U&uJd#(GaEMO-NTtGd7I|kfQ^(fu+C%W)kE`WB3^@NIc~-NA_cdm"
    "d>>E?WU>WD2<9EPsDDr)!crs$-L{0wUc_O+?Xp`ZL$FM3f!mQ%)->8}!cXp{V?l=vkh0}7Qs&Bz|0eP&#1&>E?O;hb-Y4-NgU^Xe"
    "F5ygE^55j7@XgW<!ADntW=E<Q>_O)qq!aQitw^`yBAZxaDXmdT^l{#eN)R4_iM|nphEpC$Y(>9^Ovn{|+LysYh1|5Zc$_yiK@P56"
    ">Z!P`kc5RP1d4I6cLCfoevIZ{IP<3eeGU^y@Y6IDFe*UJSb6|YIrjPb+FUJ@MB2L)48yMbm0(8~oRKyeB3}a+@1B4Eg0hxBumtRk"
    "2tTK4WPh?y5?(ZD$GtjEi>VJkM#CfuFZa93C$)nR6Hg!|biZOr|Gj|j@IEOAyTsUP6OYrDo<8hRCD>ji`$s~uQ9?19tS^(v4t{Fm"
    "V(Px%5aF#su36h+g>Zr#Tra{YvfwhPx0bI|UN{zVBs_tHC>)E*z6oj=G^<!1FCP%jT%rZ`lGQ8*H8HRaT!TRV3ve=MPFTHRQ1?%o"
    "CqAQwQuw1Z9DBYR6WVUj)gc`0v0fF$*1)H8A11wVf#wz)28u(K37&Cl_R|-|vN2o{#eu}(QXK3EVe-TP=8WE=Oh(f$zoVP5zbk~a"
    "QcSaGgs{K;64Dl$r|;5Hf%UHUEMXWPAC6JvXjZ*~S&F_p<O$pmx`VS47ZrsQ{cecgS@w+plPLPSHSYx_sR+s)^Mf(VMcLU0Gg0JC"
    "AuvgELF?a!x;h{Qj)dbav*s=pi{fCr2tk708ihz}rE+ky9h@38GcV!qz`^iD2>g|%%cbZY1G01UP$j%79SPGrnbrbBru!wUo=0J`"
    "LdK`|-+^|I9hS*p42p?n)BBvFH(bL02pls6y#m7LxT)wtn|aI3+oRTNAlFmv5ruqDA?>`J?&!|@J%L-=Vyo|xR%2lj$z%c&CW3hi"
    "<a%Z+9j&GxBnxR8S785mfw$8954chjp-2V&3?O$fdB;39K@Azi{$xtKuO?!CjSjC6+$c#Z4R1Yo;=M_aTs_LZe9#xI%kVEk|4q%t"
    "X`&0@msyz6uQGfS<G;n|W`-YOyo1qo3=c7W5u<AvKFs(^MqgvNjeU&z7`}wzCmFtz;V)$5nW=lY>2oZ53e)_9O#TlH|1-lon0yPv"
    "zg?W>-)8dujQ%<78<@%eCKHE}G{2q6@6YIG_)3QVD&sH1_c1*yXwT%xi<Ae)dGL-rcyAuuo(J#AgL8RsPagaS@Lx#dGdIoGFnl$m"
    "--Q1?@Sk9_<e5BpcOLu=h8J1qOyjR`x#b@($c^_D=Ek2b%8j4QgLf8B+p{PO|5I^pJ0p4UD_QtgvhbC2rt#7&{CFPxN*2C23;$h7"
    "ZvAg%;Y+gc=lE&7EDJxC2mde&zc&l#=H|v%&dqHPYEql(S`MPhR<*IVQd8SC)Z*1pvwA>n(@@<$Z?i^4+Efj-wbZt@sXwZ1-?6iC"
    "UtL2Rs&C!bf||U|O|?L*ORGvri?^{6HK?u4Y9p#_-lwUR>o;zBxJ|3AYe2hN)wVro_ul;~YO1Z@zqd_AT5W?$aTPV}ZLUYPEiEb#"
    "klXuXwI0FATBAz&x`TDr4cJr<w5hfc%s`cGTB}yO6X?MvO4kCvw|V#D=>N0A@Gs1PpInfp*K+i4_L|SIIkRw)(O2ir#Ao+7&vGWt"
    "!rSMi>2lU@#n#+Q%Oh4RbUmBHChG%iZf<{P%U)!9XRkQh-%~KX@17jz{}1vRTfY"
)
