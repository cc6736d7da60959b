# SPDX-License-Identifier: Apache-2.0
"""Vocabulary and sentences of the two splits; nothing stands in both, but for the languages themselves.

All of it was written for this set. `TUNE` may be looked at when thresholds are chosen, `HELD` may not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """The material of one split."""

    people: tuple[str, ...]
    things: tuple[str, ...]
    prose: tuple[str, ...]
    """English sentences with {a} and {b} for numbers, {who} and {what}."""
    chinese: tuple[str, ...]
    mixed: tuple[str, ...]
    """Chinese with English terms."""
    languages: tuple[str, ...]
    """Sentences of other languages."""
    asian: tuple[str, ...]
    """Japanese and Korean."""
    pieces: tuple[str, ...]
    """Latin token pieces: rare words, halves of words, halves of identifiers."""
    scripts: tuple[str, ...]
    """Words of many scripts."""
    phrases: tuple[str, ...]
    """What loops."""
    chinese_phrases: tuple[str, ...]
    short: tuple[str, ...]


TUNE = Vocabulary(
    people=("Mara", "Jonas", "Wei", "Priya", "Tomas", "Ines"),
    things=("marbles", "lanterns", "tickets", "ropes", "jars", "seeds"),
    prose=(
        "{who} starts with {a} {what} and receives {b} more from a neighbour.",
        "To find the total we add the two amounts, so {a} + {b} = {sum}.",
        "The question asks for what is left after the sale, not for what was sold.",
        "A train that leaves at noon covers {a} kilometres before it meets the other one.",
        "Since every side has the same length, the perimeter is four times {a}.",
        "Let us check this by going backwards: {sum} minus {b} gives {a} again.",
        "The river was higher than in any spring that the village could remember.",
        "He wrote the letter twice, because the first one sounded too cold.",
        "It follows that the number cannot be odd, which leaves only one choice.",
        "Most of the {what} were packed in boxes of {b}, and the rest went to the market.",
        "This works as long as nobody changes the order of the queue.",
        "We can rewrite the condition so that both unknowns stand on one side.",
        "If the tank holds {sum} litres, then half of it is enough for {who}.",
        "The error comes from the rounding and not from the formula itself.",
    ),
    chinese=(
        "首先我们把题目里的条件列出来，再看还缺少什么。",
        "因为每个盒子里有{a}个苹果，所以一共需要{b}个盒子。",
        "把两边同时减去{a}，就得到了我们想要的结果。",
        "小明比小红多{a}本书，两个人加起来有{sum}本。",
        "这个方法虽然简单，但是在数字很大的时候会比较慢。",
        "由此可以知道，答案只能是{sum}，不可能是别的数。",
        "春天的时候河水涨得很高，村里的人都搬到了山上。",
        "他把信写了两遍，因为第一遍听起来太冷淡了。",
        "我们再检查一遍：{a}加{b}等于{sum}，没有问题。",
        "如果不考虑运费，那么每件商品的价格是{a}元。",
    ),
    mixed=(
        "我们先用 Python 的 requests 库下载数据，然后用 pandas 做清洗。",
        "在 PyTorch 里，DataLoader 的 num_workers 设为 {a} 通常就够了。",
        "这个 API 返回的是 JSON 格式，需要用 json.loads 来解析。",
        "把 learning rate 从 1e-4 降到 1e-5 之后，loss 曲线变得平稳了。",
        "Docker 容器里的 GPU 驱动版本必须和 host 上的一致。",
        "提交代码之前，请先运行 git status 看一下有没有遗漏的文件。",
    ),
    languages=(
        "Der Zug fährt um acht Uhr ab und kommt gegen Mittag in der Stadt an.",
        "Wir rechnen zuerst die Summe aus, danach ziehen wir den Rabatt ab.",
        "Le boulanger prépare {a} pains chaque matin et en vend {b} avant midi.",
        "Pour trouver la réponse, il faut d'abord diviser par deux.",
        "El tren sale de la estación con {a} pasajeros y en la siguiente parada suben {b}.",
        "Por lo tanto, la respuesta es {sum} y no hay otra solución.",
        "Сначала найдём сумму, а потом вычтем из неё {a}.",
        "В корзине было {sum} яблок, и половину из них отдали соседям.",
        "Il negozio vende {a} bottiglie al giorno, quindi in una settimana ne vende di più.",
        "O menino tinha {a} figurinhas e ganhou mais {b} de presente.",
    ),
    asian=(
        "まず、問題の条件を整理してから、式を立てます。",
        "一個{a}円のりんごを{b}個買うと、合計でいくらになりますか。",
        "したがって、答えは{sum}になります。",
        "먼저 문제에서 주어진 조건을 정리해 봅시다.",
        "사과가 {a}개 있고 배가 {b}개 있으므로 모두 {sum}개입니다.",
        "따라서 정답은 {sum}입니다.",
    ),
    pieces=(
        "izaçao", "ViewHolder", ".setText", "quisition", "unserialize", "-flag", "ogeneous", "_cfg", "ewolf", "clamation",
        "nder", "BufferedReader", "pecified", ".hpp", "kwds", "ragma", "Yankee", "ieuse", "ToolStrip", "veltte", "grunt",
        "isplay", "/tmpl", "xFFFFFF", "ubar", "leine", "ACHER", "pheres", "oxid", "mutable", "ledger", "strncpy", "orama",
        "vault", ".readline", "zelf", "quarry", "Inflater", "umno", "riott", "celand", "thumb", "obook", "gusta", "@Entity",
        "plaster", "wrench", "IMEOUT", "berra", "clover", "opcode", "dvd", "-ranking", "arbeit", "elin", "pluck", "dynam",
    ),
    scripts=(
        "лампа", "ведро", "скрипка", "туман", "砂糖", "隧道", "窗帘", "橡皮", "καρέκλα", "βουνό", "مفتاح", "قمر", "חלון",
        "दीपक", "पत्थर", "தண்ணீர்", "மேகம்", "ಮನೆ", "ಹೂವು", "สะพาน", "ขนม", "გზა", "ზამთარი", "나무", "구름", "ձմեռ",
        "żaba", "kőris", "mantequilla", "sköld", "čaj", "ørret", "lançar", "gözlük", "puerta", "brzoza",
    ),
    phrases=(
        "and then we move on to the next one ", "so the answer must be checked again. ", "Step one is to add them up. ",
        "I think I should reconsider this. ", "the end of the end of the line of ", "return self.value\n    ",
        "- another item of the list\n", "which is equal to the previous value, ",
    ),
    chinese_phrases=("所以我们再看一遍。", "因此结果是一样的，", "等一下，让我重新算。", "然后继续下一步，"),
    short=("Yes", "No.", "B", "17", "-3.5", "Paris", "\\boxed{12}", "#### 81", "True", "是", "答：12", "A, C", "0", "x = 4", "None", "3/4"),
)  # fmt: skip

HELD = Vocabulary(
    people=("Olga", "Samir", "Hanna", "Diego", "Lin", "Ruth"),
    things=("stamps", "buckets", "candles", "planks", "shells", "coins"),
    prose=(
        "{who} has {a} {what} at home and buys {b} on Monday.",
        "Together that makes {sum}, which we write down before going on.",
        "What remains is to divide the result equally among the three of them.",
        "The second worker needs {b} hours for what the first one does in {a}.",
        "Because the triangle is right-angled, we may use the theorem of Pythagoras.",
        "Putting the value back into the equation confirms it: {a} + {b} is {sum}.",
        "Nobody in the harbour had seen the ship arrive, yet there it was.",
        "She closed the shop early and walked home along the old wall.",
        "Such a function is continuous everywhere but has no derivative at zero.",
        "About {a} of the {what} turned out to be broken when they were unpacked.",
        "You should restart the server after you have edited its configuration.",
        "Notice that the order does not matter here, so we divide by two.",
        "With {sum} seats on the bus, {who} still finds a place at the window.",
        "In other words, the claim is false unless the set is finite.",
    ),
    chinese=(
        "解：设原来有x只羊，根据题意可以列出方程。",
        "甲队每天修{a}米，乙队每天修{b}米，两队合作每天修{sum}米。",
        "已知长方形的面积，要求它的宽，只要用面积除以长。",
        "经过验算，{sum}满足题目的全部要求。",
        "港口里没有人看见那条船是什么时候来的。",
        "她早早关了店门，沿着老城墙慢慢走回家。",
        "修改配置文件以后，一定要重新启动服务才会生效。",
        "注意这里的顺序并不重要，因此还要再除以二。",
        "换句话说，除非集合是有限的，否则结论不成立。",
        "超市里的牛奶打八折，买{a}盒比原来便宜了{b}元。",
    ),
    mixed=(
        "如果 Kubernetes 的 Pod 一直处于 Pending 状态，先检查 node 的资源。",
        "这段 C++ 代码用了 std::vector，需要 include 对应的头文件。",
        "训练时把 batch size 设成 {a}，显存占用大约是 {b} GB。",
        "Redis 的 key 要设置 TTL，否则内存会越来越大。",
        "用 SELECT 语句查询 orders 表，再按 user_id 做 GROUP BY。",
        "前端用 React 写，后端是 FastAPI，两边通过 HTTP 通信。",
    ),
    languages=(
        "Der Bauer verkauft {a} Eier auf dem Markt und behält {b} für sich.",
        "Damit ist gezeigt, dass die Folge nicht gegen null konvergiert.",
        "La somme des deux nombres est égale à {sum}, donc on peut conclure.",
        "Le train part à huit heures et il arrive après midi.",
        "La suma de los ángulos de un triángulo es siempre igual a dos rectos.",
        "María tiene {a} caramelos y le da {b} a su hermano.",
        "Поезд прошёл {a} километров за первый час и {b} за второй.",
        "Таким образом, уравнение не имеет решений, кроме нуля.",
        "De trein vertrekt om acht uur en komt rond de middag aan in de stad.",
        "Babası ona {a} ceviz verdi ve annesi de {b} tane daha ekledi.",
    ),
    asian=(
        "ここで、両辺を{a}で割ると、求める値が得られます。",
        "電車は駅を出てから{b}分後に橋を渡りました。",
        "よって、全部で{sum}人が参加しました。",
        "이 식의 양변을 {a}로 나누면 값을 구할 수 있습니다.",
        "기차는 {b}분 후에 다음 역에 도착했습니다.",
        "그러므로 모두 {sum}명이 참가했습니다.",
    ),
    pieces=(
        "ractive", "onCreateView", ".toLower", "ptide", "deserialize", "-button", "ilateral", "_idx", "hawk", "strument",
        "sylvan", "InputStream", "oothing", ".vue", "argv", "efined", "Falcon", "euses", "DropDown", "blijf", "snort",
        "ermanent", "/vendor", "0xDEAD", "ombok", "schaft", "INGLE", "ospheric", "chlor", "volatile", "anvil", "memset",
        "drome", "turret", ".writeln", "zich", "gravel", "Compressor", "ilo", "hatt", "ungan", "ankle", "ebook", "mond",
        "@Inject", "mortar", "chisel", "TIMESTAMP", "terra", "thistle", "bytecode", "usb", "-sorted", "gesetz", "olin",
        "twist", "kinem",
    ),
    scripts=(
        "ножницы", "крыша", "ветка", "песок", "蜂蜜", "烟囱", "剪刀", "雨伞", "ποτάμι", "ψωμί", "شجرة", "كرسي", "שולחן",
        "नदी", "खिड़की", "கதவு", "மலை", "ಬೆಟ್ಟ", "ನದಿ", "แม่น้ำ", "ประตู", "წყალი", "მთვარე", "바람", "열쇠", "ծառ",
        "źdźbło", "szőlő", "almohada", "måne", "řeka", "bål", "coração", "köprü", "ventana", "jabłoń",
    ),
    phrases=(
        "and we repeat this until it is done ", "that is why it has to be computed anew. ", "First we look at the table. ",
        "Hmm, that does not seem right, ", "a part of the part of the whole of ", "print(result)\n    ",
        "* one more point to mention\n", "as was shown in the line above, ",
    ),
    chinese_phrases=("我们换一种方法试试。", "结果还是不对，", "让我想一想，再看题目。", "重复上面的步骤，"),
    short=("Maybe", "Yes.", "D", "204", "-0.75", "Nairobi", "\\boxed{7/8}", "#### 5", "False", "否", "答案：30", "B and D", "1", "y = -2", "[]", "5:3"),
)  # fmt: skip
